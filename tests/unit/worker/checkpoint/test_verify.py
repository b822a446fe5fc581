"""A changed byte is found and named, and what has not changed is not read again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from worker.checkpoint.layout import expert_file, read_manifest
from worker.checkpoint.resolve import Prepared, open_stamps, resolve
from worker.checkpoint.verify import check_files, check_records, check_sizes
from worker.contract.errors import CheckpointError
from worker.contract.task import CheckpointRef


@pytest.fixture
def copy(demo: Prepared, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo.directory, tmp_path / "copy"))


def _flip(path: Path, offset: int) -> None:
    with path.open("r+b") as handle:
        handle.seek(offset)
        byte = handle.read(1)
        handle.seek(offset)
        handle.write(bytes([byte[0] ^ 1]))
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def test_a_flipped_byte_is_named_by_layer_expert_and_digest(copy: Path, tmp_path: Path):
    manifest, stamps = read_manifest(copy), open_stamps(tmp_path)
    assert check_records(copy, manifest, stamps) == 512
    _flip(expert_file(copy, 5), 11 * manifest.record.record_bytes + 1234)
    expected = manifest.record_digests[5][11]
    with pytest.raises(CheckpointError, match=rf"layer 5 expert 11 has digest \w{{32}}, the manifest says {expected}"):
        check_records(copy, manifest, stamps)


def test_padding_is_not_content(copy: Path, tmp_path: Path):
    manifest = read_manifest(copy)
    _flip(expert_file(copy, 5), 12 * manifest.record.record_bytes - 1)
    assert check_records(copy, manifest, open_stamps(tmp_path)) == 512


def test_unchanged_files_are_not_read_again_unless_asked(copy: Path, tmp_path: Path):
    manifest = read_manifest(copy)
    check_records(copy, manifest, open_stamps(tmp_path))
    assert check_records(copy, manifest, open_stamps(tmp_path)) == 0
    assert check_records(copy, manifest, open_stamps(tmp_path), always=True) == 512
    os.utime(expert_file(copy, 3))
    assert check_records(copy, manifest, open_stamps(tmp_path)) == 64


def test_a_truncated_expert_file_is_found_by_its_size(copy: Path):
    manifest = read_manifest(copy)
    path = expert_file(copy, 2)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CheckpointError, match=r"layer_002\.bin has 2,097,151 bytes, the manifest says 2,097,152"):
        check_sizes(copy, manifest)


def test_a_changed_trunk_is_named(copy: Path, tmp_path: Path):
    manifest, stamps = read_manifest(copy), open_stamps(tmp_path)
    check_files(copy, manifest, stamps)
    _flip(copy / "model.safetensors", 400_000)
    with pytest.raises(CheckpointError, match=r"model\.safetensors has digest"):
        check_files(copy, manifest, stamps)


def test_resolving_names_what_is_missing_or_not_what_was_asked_for(demo: Prepared, cache_directory: Path):
    stamps = open_stamps(cache_directory)

    def find(reference: CheckpointRef, dtype=None) -> Prepared:
        return resolve(reference, cache=cache_directory, compute_dtype=dtype, stamps=stamps)

    assert find(CheckpointRef(source=str(demo.directory))).manifest == demo.manifest
    with pytest.raises(CheckpointError, match="checkpoint /nowhere does not exist"):
        find(CheckpointRef(source="/nowhere"))
    with pytest.raises(CheckpointError, match="prepared for float32, the task computes in bfloat16"):
        find(CheckpointRef(source=str(demo.directory)), "bfloat16")
    with pytest.raises(CheckpointError, match="the task expects 0000"):
        find(CheckpointRef(source="demo", digest="0000"), "float32")


def test_a_manifest_of_another_version_is_refused(copy: Path):
    text = (copy / "manifest.json").read_text().replace('"layout_version": 1', '"layout_version": 99')
    (copy / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match="has layout version 99, this build reads 1"):
        read_manifest(copy)

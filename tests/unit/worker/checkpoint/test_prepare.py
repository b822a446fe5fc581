"""Preparing keeps every byte of every expert, and never leaves anything that looks finished but is not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from worker.checkpoint.digests import record_digest
from worker.checkpoint.layout import RECORD_ALIGNMENT, expert_file, is_prepared, read_manifest
from worker.checkpoint.prepare import prepare
from worker.checkpoint.resolve import BUNDLED_DIRECTORY, Prepared, open_stamps
from worker.checkpoint.source import read_source
from worker.contract.errors import CheckpointError, StorageError


def _tensors() -> dict[str, mx.array]:
    loaded = mx.load(str(BUNDLED_DIRECTORY / "model.safetensors"))
    assert isinstance(loaded, dict)
    return loaded


def test_every_record_holds_the_tensors_of_its_expert(demo: Prepared):
    source = _tensors()
    manifest = demo.manifest
    assert manifest.record.record_bytes % RECORD_ALIGNMENT == 0
    for layer in manifest.moe_layers:
        raw = np.fromfile(expert_file(demo.directory, layer), dtype=np.uint8)
        records = raw.reshape(manifest.num_experts, manifest.record.record_bytes)
        for part in manifest.record.parts:
            tensor = source[f"model.layers.{layer}.mlp.switch_mlp.{part.name}"]
            expected = np.array(tensor if part.dtype == "uint32" else tensor.astype(mx.float32))
            found = records[:, part.offset : part.offset + part.nbytes]
            assert np.array_equal(found, expected.reshape(manifest.num_experts, -1).view(np.uint8)), part.name
        assert not records[:, manifest.record.payload_bytes :].any()
        payload = records[7, : manifest.record.payload_bytes]
        assert manifest.record_digests[layer][7] == record_digest(payload.tobytes())


def test_the_stored_dtype_is_kept_where_nothing_else_is_asked_for(tmp_path: Path):
    out = tmp_path / "out"
    prepare(read_source(BUNDLED_DIRECTORY), out, compute_dtype="bfloat16", stamps=open_stamps(tmp_path))
    manifest = read_manifest(out)
    source = _tensors()["model.layers.2.mlp.switch_mlp.up_proj.scales"]
    part = next(part for part in manifest.record.parts if part.name == "up_proj.scales")
    raw = np.fromfile(expert_file(out, 2), dtype=np.uint8).reshape(manifest.num_experts, -1)
    found = np.ascontiguousarray(raw[:, part.offset : part.offset + part.nbytes]).view(np.uint16)
    assert np.array_equal(found, np.array(source.view(mx.uint16)).reshape(manifest.num_experts, -1))


def test_an_interrupted_preparation_leaves_nothing(tmp_path: Path):
    class StopError(Exception):
        pass

    def stop(fraction: float, what: str) -> None:
        if what == "layer 3":
            raise StopError

    out = tmp_path / "out"
    with pytest.raises(StopError):
        prepare(
            read_source(BUNDLED_DIRECTORY), out, compute_dtype="float32", stamps=open_stamps(tmp_path), on_progress=stop
        )
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []


def test_a_killed_preparation_is_swept_up_and_done_again(tmp_path: Path):
    out = tmp_path / "out"
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path\n"
            "from worker.checkpoint.prepare import prepare\n"
            "from worker.checkpoint.resolve import BUNDLED_DIRECTORY, open_stamps\n"
            "from worker.checkpoint.source import read_source\n"
            "def wait(fraction, what):\n"
            "    if what == 'layer 3': print('here', flush=True); time.sleep(60)\n"
            f"prepare(read_source(BUNDLED_DIRECTORY), Path({str(out)!r}), compute_dtype='float32',"
            f" stamps=open_stamps(Path({str(tmp_path)!r})), on_progress=wait)",
        ],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"here\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not out.exists()
    assert len(list(tmp_path.glob("out.partial-*"))) == 1
    prepare(read_source(BUNDLED_DIRECTORY), out, compute_dtype="float32", stamps=open_stamps(tmp_path))
    assert is_prepared(out)
    assert list(tmp_path.glob("out.partial-*")) == []


def test_the_same_content_is_not_written_twice(tmp_path: Path):
    out = tmp_path / "out"
    source, stamps = read_source(BUNDLED_DIRECTORY), open_stamps(tmp_path)
    first = prepare(source, out, compute_dtype="float32", stamps=stamps)
    written = expert_file(out, 0).stat().st_mtime_ns
    assert prepare(source, out, compute_dtype="float32", stamps=stamps) == first
    assert expert_file(out, 0).stat().st_mtime_ns == written
    with pytest.raises(StorageError, match="another prepared checkpoint"):
        prepare(source, out, compute_dtype="bfloat16", stamps=stamps)


def test_a_directory_with_something_in_it_is_not_overwritten(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/precious").write_text("mine")
    with pytest.raises(StorageError, match="is not empty"):
        prepare(read_source(BUNDLED_DIRECTORY), tmp_path / "out", compute_dtype="float32", stamps=open_stamps(tmp_path))
    assert (tmp_path / "out/precious").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounting a small disk needs root on Linux")
def test_a_disk_too_small_is_refused_with_the_arithmetic(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    try:
        with pytest.raises(StorageError, match=r"8,388,608 bytes free, preparing needs [\d,]+ \(experts 16,777,216"):
            prepare(read_source(BUNDLED_DIRECTORY), disk / "out", compute_dtype="float32", stamps=open_stamps(tmp_path))
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounting a small disk needs root on Linux")
def test_a_disk_that_fills_while_writing_leaves_nothing(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(disk)], check=True)

    def fill(fraction: float, what: str) -> None:
        if what == "layer 2":
            free = shutil.disk_usage(disk).free
            (disk / "other").write_bytes(b"\0" * (free - 65536))

    try:
        with pytest.raises(StorageError, match="No space left"):
            prepare(
                read_source(BUNDLED_DIRECTORY),
                disk / "out",
                compute_dtype="float32",
                stamps=open_stamps(tmp_path),
                on_progress=fill,
            )
        assert [path.name for path in disk.iterdir()] == ["other"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLED_DIRECTORY, tmp_path / "copy"))


def test_a_truncated_weight_file_is_named(tmp_path: Path):
    copy = _copy(tmp_path)
    os.truncate(copy / "model.safetensors", 5_000_000)
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors is truncated: .* ends at byte \d+, the file has 5000000"
    ):
        read_source(copy)


def test_a_missing_shard_is_named(tmp_path: Path):
    copy = _copy(tmp_path)
    index = json.loads((copy / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.norm.weight"] = "model-00002.safetensors"
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"lacks model-00002\.safetensors"):
        read_source(copy)


def test_another_kind_of_model_is_refused(tmp_path: Path):
    copy = _copy(tmp_path)
    config = json.loads((copy / "config.json").read_text()) | {"model_type": "llama"}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="model_type 'llama', this build streams qwen3_next"):
        read_source(copy)


def test_an_unquantized_checkpoint_is_refused_with_the_command(tmp_path: Path):
    copy = _copy(tmp_path)
    config = json.loads((copy / "config.json").read_text())
    del config["quantization"]
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"is not quantized; .*mlx_lm\.convert"):
        read_source(copy)


def test_the_digest_changes_with_the_content_and_not_with_the_place(tmp_path: Path):
    copy, stamps = _copy(tmp_path), open_stamps(tmp_path)
    digest = read_source(BUNDLED_DIRECTORY).digest(stamps)[0]
    assert read_source(copy).digest(stamps)[0] == digest
    time.sleep(0.01)
    with (copy / "config.json").open("a") as handle:
        handle.write("\n")
    assert read_source(copy).digest(stamps)[0] != digest

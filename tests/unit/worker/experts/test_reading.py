"""Records arrive whole or the run ends: short reads, I/O errors and truncation are named on the demand path."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from worker.contract.errors import CheckpointError
from worker.experts.file import ExpertFile
from worker.experts.pool import ABSENT, LayerPool
from worker.experts.reader import DemandReader, ReadJob

from .conftest import LAYOUT, payload


def _into(buffer: bytearray) -> Callable[[ExpertFile, int], int]:
    return lambda file, expert: file.read_into(expert, [memoryview(buffer)])


def test_a_record_is_scattered_into_its_parts(expert_path: Path):
    parts = [bytearray(part.nbytes) for part in LAYOUT.parts]
    ExpertFile(expert_path, 0, LAYOUT).read_into(9, [memoryview(part) for part in parts])
    assert b"".join(parts) == payload(9)


def test_a_short_read_is_continued_where_it_stopped(expert_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, calls = os.preadv, []

    def seven_bytes(fd: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        return real(fd, [buffers[0][:7]], offset)

    monkeypatch.setattr(os, "preadv", seven_bytes)
    parts = [bytearray(part.nbytes) for part in LAYOUT.parts]
    ExpertFile(expert_path, 0, LAYOUT).read_into(9, [memoryview(part) for part in parts])
    assert b"".join(parts) == payload(9)
    assert len(calls) > LAYOUT.payload_bytes // 7


def test_a_file_truncated_while_open_is_named(make_pool: Callable[..., LayerPool], expert_path: Path):
    pool = make_pool(4)
    os.truncate(expert_path, 20 * LAYOUT.record_bytes + 100)
    pool.admit(np.array([19]))
    with pytest.raises(CheckpointError, match=r"layer_000\.bin is truncated: layer 0 expert 20 has 100 of 176 bytes"):
        pool.admit(np.array([20]))
    assert pool.slot_of[20] == ABSENT
    pool.check_integrity()


def test_an_io_error_is_named(make_pool: Callable[..., LayerPool], monkeypatch: pytest.MonkeyPatch):
    pool = make_pool(4)

    def fail(fd: int, buffers: list[memoryview], offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(CheckpointError, match=r"reading layer 0 expert 7 .* failed: Input/output error"):
        pool.admit(np.array([7]))
    assert pool.slot_of[7] == ABSENT


@pytest.mark.parametrize("threads", [1, 4])
def test_counters_tell_what_was_read(expert_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("worker.experts.reader.MIN_BATCH_BYTES", 1)
    reader, file = DemandReader(threads), ExpertFile(expert_path, 0, LAYOUT)
    buffers = [bytearray(LAYOUT.payload_bytes) for _ in range(5)]
    reader.read([ReadJob(file, expert, _into(buffer)) for expert, buffer in enumerate(buffers)])
    assert [bytes(buffer) for buffer in buffers] == [payload(expert) for expert in range(5)]
    counters = reader.take()
    assert (counters.submitted, counters.completed, counters.bytes) == (5, 5, 5 * LAYOUT.payload_bytes)
    assert (counters.depth_max, counters.depth_mean) == (5, 3.0)
    assert reader.counters.submitted == 0
    assert reader.counters.depth_mean is None
    reader.close()


def test_one_failing_thread_fails_the_read_and_the_others_finish_first(
    expert_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("worker.experts.reader.MIN_BATCH_BYTES", 1)
    os.truncate(expert_path, 30 * LAYOUT.record_bytes)
    reader, file = DemandReader(4), ExpertFile(expert_path, 0, LAYOUT)
    buffers = [bytearray(LAYOUT.payload_bytes) for _ in range(4)]
    jobs = [ReadJob(file, expert, _into(buffers[i])) for i, expert in enumerate((1, 31, 2, 3))]
    with pytest.raises(CheckpointError, match="expert 31 has 0 of 176 bytes"):
        reader.read(jobs)
    assert bytes(buffers[3]) == payload(3)
    reader.close()

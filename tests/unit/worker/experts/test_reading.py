"""Records arrive whole or the run ends: short reads, I/O errors and truncation are named on the demand path."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from worker.contract.errors import CheckpointError, TaskError
from worker.experts.file import ExpertFile
from worker.experts.pool import ABSENT, LayerPool
from worker.experts.reader import Reader, ReadJob
from worker.experts.staging import StagingBuffer

from .conftest import LAYOUT, payload


def _into(buffer: bytearray) -> StagingBuffer:
    return StagingBuffer(memoryview(buffer))


def test_a_record_is_scattered_into_its_parts(expert_path: Path):
    parts = [bytearray(part.nbytes) for part in LAYOUT.parts]
    ExpertFile(expert_path, 0, LAYOUT).read_at(9, 0, [memoryview(part) for part in parts])
    assert b"".join(parts) == payload(9)


def test_a_short_read_is_continued_where_it_stopped(expert_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, calls = os.preadv, []

    def seven_bytes(fd: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        return real(fd, [buffers[0][:7]], offset)

    monkeypatch.setattr(os, "preadv", seven_bytes)
    parts = [bytearray(part.nbytes) for part in LAYOUT.parts]
    ExpertFile(expert_path, 0, LAYOUT).read_at(9, 0, [memoryview(part) for part in parts])
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
    monkeypatch.setattr("worker.experts.extents.MIN_OPERATION_BYTES", 1)
    reader, file = Reader(threads), ExpertFile(expert_path, 0, LAYOUT)
    buffers = [bytearray(LAYOUT.payload_bytes) for _ in range(5)]
    reader.read([ReadJob(file, 2 * index, _into(buffer)) for index, buffer in enumerate(buffers)])
    assert [bytes(buffer) for buffer in buffers] == [payload(2 * index) for index in range(5)]
    counters = reader.take()
    assert (counters.submitted, counters.completed, counters.bytes) == (5, 5, 5 * LAYOUT.payload_bytes)
    assert counters.num_reads == 5
    assert counters.depth_samples == (1 if threads == 1 else 5)
    assert 1 <= counters.depth_max <= threads + 1
    assert 0 < counters.active_s <= counters.busy_s + 1
    assert reader.counters.submitted == 0
    assert reader.counters.depth_mean is None
    reader.close()


def test_neighbours_on_disk_are_read_by_one_call(expert_path: Path):
    reader, file = Reader(1), ExpertFile(expert_path, 0, LAYOUT)
    chosen = [3, 4, 5, 9, 11, 12]
    buffers = [bytearray(LAYOUT.payload_bytes) for _ in chosen]
    reader.read([ReadJob(file, expert, _into(buffer)) for expert, buffer in zip(chosen, buffers, strict=True)])
    assert [bytes(buffer) for buffer in buffers] == [payload(expert) for expert in chosen]
    assert reader.take().num_reads == 3
    reader.close()


def test_reads_past_the_page_cache_bring_the_same_bytes(expert_path: Path):
    file = ExpertFile(expert_path, 0, LAYOUT, bypass_page_cache=True)
    assert [file.read(expert) for expert in (0, 7, 31)] == [payload(expert) for expert in (0, 7, 31)]
    part = bytearray(40)
    file.read_at(7, 130, [memoryview(part)[:9], memoryview(part)[9:]])
    assert bytes(part) == payload(7)[:40]
    with pytest.raises(CheckpointError, match="layer 0 expert 32 has 0 of 176 bytes"):
        file.read(32)


def test_a_file_system_without_a_way_past_the_page_cache_is_named():
    with pytest.raises(TaskError, match=r"page_cache is 'bypass', but /proc/version cannot be read past it.*'use'"):
        ExpertFile(Path("/proc/version"), 0, LAYOUT, bypass_page_cache=True)


class _Held(StagingBuffer):
    """A destination whose reading thread waits until it is let go, and which says when its turn came."""

    def __init__(self, name: str, order: list[str], *, held: bool = False) -> None:
        super().__init__(memoryview(bytearray(LAYOUT.payload_bytes)))
        self._name, self._order = name, order
        self.begun, self.go = threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def buffers(self) -> list[memoryview]:
        self._order.append(self._name)
        self.begun.set()
        assert self.go.wait(10)
        return super().buffers()


def test_what_is_demanded_is_read_before_what_is_read_ahead(expert_path: Path):
    """One thread, held by a first read ahead: of the two that wait behind it, the demanded one comes next."""
    order: list[str] = []
    first = _Held("first", order, held=True)
    reader = Reader(1, while_waiting=first.go.set)
    file = ExpertFile(expert_path, 0, LAYOUT)
    assert reader.read_ahead(ReadJob(file, 1, first))
    assert first.begun.wait(10)
    ahead = reader.read_ahead(ReadJob(file, 2, _Held("ahead", order)))
    assert ahead is not None
    reader.read([ReadJob(file, 3, _Held("demanded", order))])
    assert ahead.wait(10)
    assert order == ["first", "demanded", "ahead"]
    reader.close()


def test_a_read_ahead_that_has_not_begun_can_be_taken_back_or_read_at_once(expert_path: Path):
    order: list[str] = []
    first = _Held("first", order, held=True)
    reader, file = Reader(1), ExpertFile(expert_path, 0, LAYOUT)
    running = reader.read_ahead(ReadJob(file, 1, first))
    assert running is not None
    assert first.begun.wait(10)
    unwanted, wanted = (reader.read_ahead(ReadJob(file, e, _Held(str(e), order))) for e in (2, 3))
    assert unwanted is not None
    assert wanted is not None
    assert reader.recall(unwanted)
    assert not reader.recall(running)
    reader.finish(wanted)
    assert (wanted.state, order) == ("done", ["first", "3"])
    first.go.set()
    reader.finish(running)
    assert running.state == "done"
    counters = reader.take()
    assert (counters.submitted, counters.completed, counters.cancelled) == (3, 2, 1)
    reader.close()


def test_the_queue_is_bounded(expert_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("worker.experts.extents.MIN_OPERATION_BYTES", 1)
    order: list[str] = []
    held = [_Held(str(index), order, held=True) for index in range(8)]
    reader, file = Reader(8, queue_depth=6), ExpertFile(expert_path, 0, LAYOUT)
    taken = [reader.read_ahead(ReadJob(file, index, hold)) for index, hold in enumerate(held)]
    assert [ahead is not None for ahead in taken] == [True] * 3 + [False] * 5
    buffers = [bytearray(LAYOUT.payload_bytes) for _ in range(8)]
    reader.read([ReadJob(file, 10 + 2 * index, _into(buffer)) for index, buffer in enumerate(buffers)])
    assert [bytes(buffer) for buffer in buffers] == [payload(10 + 2 * index) for index in range(8)]
    assert reader.take().depth_max <= 6
    for hold in held:
        hold.go.set()
    reader.close()


def test_an_error_of_a_read_ahead_stays_with_it(expert_path: Path):
    os.truncate(expert_path, 30 * LAYOUT.record_bytes)
    reader, file = Reader(2), ExpertFile(expert_path, 0, LAYOUT)
    ahead = reader.read_ahead(ReadJob(file, 31, _into(bytearray(LAYOUT.payload_bytes))))
    assert ahead is not None
    reader.finish(ahead)
    assert ahead.state == "failed"
    reader.close()


def test_one_failing_thread_fails_the_read_and_the_others_finish_first(
    expert_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("worker.experts.extents.MIN_OPERATION_BYTES", 1)
    os.truncate(expert_path, 30 * LAYOUT.record_bytes)
    reader, file = Reader(4), ExpertFile(expert_path, 0, LAYOUT)
    buffers = [bytearray(LAYOUT.payload_bytes) for _ in range(4)]
    jobs = [ReadJob(file, expert, _into(buffers[i])) for i, expert in enumerate((1, 31, 2, 3))]
    with pytest.raises(CheckpointError, match="expert 31 has 0 of 176 bytes"):
        reader.read(jobs)
    assert bytes(buffers[3]) == payload(3)
    reader.close()

"""Demand reads by several threads: the forward waits until every record it needs has arrived."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from worker.experts.file import ExpertFile

MIN_BATCH_BYTES = 256 << 10
"""Less than this per thread costs more to hand over than to read: small reads stay on the calling thread."""


@dataclass(slots=True)
class ReaderCounters:
    """Sums since the last reset. Units: seconds of all threads together in `busy_s`.

    The queue depth at a submission is the number of records outstanding then, the submitted one included.
    """

    submitted: int = 0
    completed: int = 0
    bytes: int = 0
    busy_s: float = 0.0
    depth_sum: int = 0
    depth_max: int = 0

    @property
    def depth_mean(self) -> float | None:
        return self.depth_sum / self.submitted if self.submitted else None


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Read one expert's record; `receive` takes it where it belongs and returns its bytes."""

    file: ExpertFile
    expert: int
    receive: Callable[[ExpertFile, int], int]


class DemandReader:
    """A pool of reading threads. `read` returns when all jobs are done, or raises what the first failed job raised."""

    def __init__(self, num_threads: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.num_threads = num_threads
        self.counters = ReaderCounters()
        self._clock = clock
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="expert-reader")

    def read(self, jobs: list[ReadJob]) -> None:
        """Mutates: the jobs' buffers and the counters. Raises: CheckpointError."""
        counters = self.counters
        num_jobs = len(jobs)
        counters.submitted += num_jobs
        counters.depth_sum += num_jobs * (num_jobs + 1) // 2
        counters.depth_max = max(counters.depth_max, num_jobs)
        batches = self._batches(jobs)
        futures = [self._threads.submit(self._run, batch) for batch in batches[1:]]
        results = []
        try:
            results.append(self._run(batches[0]))
        finally:
            # Wait for every batch even after an error: no thread may still write into a slot when the caller goes on.
            results += [future.exception() or future.result() for future in futures]
        for result in results:
            if isinstance(result, BaseException):
                raise result
            num_bytes, busy_s, completed = result
            counters.bytes += num_bytes
            counters.busy_s += busy_s
            counters.completed += completed

    def take(self) -> ReaderCounters:
        """Hand over what was counted, and start anew."""
        taken, self.counters = self.counters, ReaderCounters()
        return taken

    def close(self) -> None:
        self._threads.shutdown()

    def _batches(self, jobs: list[ReadJob]) -> list[list[ReadJob]]:
        total = sum(job.file.payload_bytes for job in jobs)
        num_batches = max(1, min(len(jobs), self.num_threads, total // MIN_BATCH_BYTES))
        return [jobs[start::num_batches] for start in range(num_batches)]

    def _run(self, jobs: list[ReadJob]) -> tuple[int, float, int]:
        start = self._clock()
        num_bytes = sum(job.receive(job.file, job.expert) for job in jobs)
        return num_bytes, self._clock() - start, len(jobs)

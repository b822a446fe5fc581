"""Reads by several threads from one bounded queue: what is demanded now before what is read ahead.

    read         the forward waits until every record it needs has arrived; the calling thread reads along
    read_ahead   hand over one record that will probably be needed, if the queue has room, and go on
    recall       take back what has not begun
    finish       wait for one that turned out to be needed

Reads ahead occupy at most half of the threads and half of the queue, so a demanded record never waits behind them all. An
error of a read ahead stays with it: whoever demands the record reads it again, and meets the error then.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from worker.contract.errors import CheckpointError
from worker.experts.counters import Telemetry
from worker.experts.extents import Extent, Operation, plan_reads
from worker.experts.file import Buffers, ExpertFile, window

WAIT_TICK_S = 0.0005
"""How often `while_waiting` is called."""

State = Literal["queued", "running", "done", "failed", "recalled"]


@dataclass(slots=True)
class ReaderCounters:
    """Sums since the last reset. Records in `submitted`, `completed`, `cancelled`; read calls in `num_reads`.

    Units: seconds of all threads together in `busy_s`; seconds in which anything was outstanding in `active_s`. The queue
    depth at a submission is the number of operations outstanding then, the submitted one included.
    """

    submitted: int = 0
    completed: int = 0
    cancelled: int = 0
    num_reads: int = 0
    bytes: int = 0
    busy_s: float = 0.0
    active_s: float = 0.0
    depth_samples: int = 0
    depth_sum: int = 0
    depth_max: int = 0

    @property
    def depth_mean(self) -> float | None:
        return self.depth_sum / self.depth_samples if self.depth_samples else None


class Destination(Protocol):
    """Where one record goes."""

    def buffers(self) -> Buffers:
        """The memory of its payload, in order."""
        ...


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Read one expert's record. Jobs of one `read` are of one file, distinct and ascending."""

    file: ExpertFile
    expert: int
    destination: Destination


class Ahead:
    """One record that is read ahead. Only the reader changes its state."""

    __slots__ = ("_finished", "job", "state")

    def __init__(self, job: ReadJob) -> None:
        self.job = job
        self.state: State = "queued"
        self._finished = threading.Lock()
        self._finished.acquire()

    def wait(self, timeout_s: float = -1) -> bool:
        """Return whether it is done or failed by then. Not for one that was recalled."""
        finished = self._finished.acquire(timeout=timeout_s)
        if finished:
            self._finished.release()
        return finished

    def end(self, state: State) -> None:
        """The reader's: it was read, or could not be."""
        self.state = state
        self._finished.release()


@dataclass(frozen=True, slots=True)
class _Demand:
    jobs: Sequence[ReadJob]
    operation: Operation
    results: queue.SimpleQueue[BaseException | None]


class Reader:
    """The threads and their queue. One thread submits: the one that runs the model."""

    def __init__(
        self,
        num_threads: int,
        *,
        queue_depth: int = 16,
        while_waiting: Callable[[], None] | None = None,
        telemetry: Telemetry | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`while_waiting`, when given, is called again and again while `read` waits, which then leaves reading to others.

        Every read is put on the timeline of `telemetry`.
        """
        self._telemetry = telemetry or Telemetry()
        self.num_threads, self.queue_depth = num_threads, queue_depth
        self.counters = ReaderCounters()
        self._while_waiting, self._clock = while_waiting, clock
        self._max_ahead_running = max(1, num_threads // 2)
        self._max_ahead = max(1, queue_depth // 2)
        self._guard = threading.Lock()
        self._demands: deque[_Demand] = deque()
        self._aheads: deque[Ahead] = deque()
        self._num_ahead_running = 0
        self._outstanding, self._active_since = 0, 0.0
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"expert-reader-{index}", daemon=True)
            for index in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def read(self, jobs: Sequence[ReadJob], *, on_submitted: Callable[[], None] | None = None) -> None:
        """Return when all jobs are done, or raise what the first failed one raised, when none runs any more.

        `on_submitted` is called once, when all are on their way. Mutates: the jobs' destinations and the counters. Raises:
        CheckpointError.
        """
        results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        experts = [job.expert for job in jobs]
        demands = [
            _Demand(jobs, op, results) for op in plan_reads(experts, jobs[0].file.payload_bytes, self.num_threads)
        ]
        self.counters.submitted += len(jobs)
        helps = self._while_waiting is None
        for demand in demands[1:] if helps else demands:
            self._submit_or_run(demand)
        if on_submitted is not None:
            on_submitted()
        if helps:
            self._enter()
            self._read_demand(demands[0])
            while (stolen := self._steal()) is not None:
                self._read_demand(stolen)
        failures = [failure for _ in demands if (failure := self._await(results)) is not None]
        if failures:
            raise failures[0]
        with self._guard:  # a read ahead may end meanwhile
            self.counters.completed += len(jobs)

    def read_ahead(self, job: ReadJob) -> Ahead | None:
        """Hand over a record to read when nothing is demanded; None when there are too many already."""
        with self._guard:
            num_ahead = len(self._aheads) + self._num_ahead_running
            if num_ahead >= self._max_ahead or not self._has_room():
                return None
            ahead = Ahead(job)
            self._aheads.append(ahead)
            self._count_in()
        self.counters.submitted += 1
        self._tokens.put(True)
        return ahead

    def recall(self, ahead: Ahead) -> bool:
        """Take it back if its read has not begun, and say whether that was so."""
        with self._guard:
            if ahead.state != "queued":
                return False
            self._aheads.remove(ahead)
            ahead.state = "recalled"
            self.counters.cancelled += 1
            self._count_out()
        return True

    def finish(self, ahead: Ahead) -> None:
        """Return when it is done or failed; if it has not begun, read it here and now."""
        with self._guard:
            mine = ahead.state == "queued"
            if mine:
                self._aheads.remove(ahead)
                ahead.state = "running"
                self._num_ahead_running += 1
        if mine:
            self._read_ahead(ahead)
        elif self._while_waiting is None:
            ahead.wait()
        else:
            while not ahead.wait(WAIT_TICK_S):
                self._while_waiting()

    def take(self) -> ReaderCounters:
        """Hand over what was counted, and start anew."""
        with self._guard:
            taken, self.counters = self.counters, ReaderCounters()
        return taken

    def close(self) -> None:
        """End the threads once what they read has been read."""
        for _ in self._threads:
            self._tokens.put(False)
        for thread in self._threads:
            thread.join()

    def _submit_or_run(self, demand: _Demand) -> None:
        with self._guard:
            has_room = self._has_room()
            self._count_in()
            if has_room:
                self._demands.append(demand)
        if has_room:
            self._tokens.put(True)
        else:
            self._read_demand(demand)

    def _await(self, results: queue.SimpleQueue[BaseException | None]) -> BaseException | None:
        if self._while_waiting is None:
            return results.get()
        while True:
            try:
                return results.get(timeout=WAIT_TICK_S)
            except queue.Empty:
                self._while_waiting()

    def _serve(self) -> None:
        while self._tokens.get():
            while self._serve_one():
                pass

    def _serve_one(self) -> bool:
        """Read what is most urgent, or say that there is nothing to do."""
        demand, ahead = None, None
        with self._guard:
            if self._demands:
                demand = self._demands.popleft()
            elif self._aheads and self._num_ahead_running < self._max_ahead_running:
                ahead = self._aheads.popleft()
                ahead.state = "running"
                self._num_ahead_running += 1
        if demand is not None:
            self._read_demand(demand)
        elif ahead is not None:
            self._read_ahead(ahead)
        return demand is not None or ahead is not None

    def _steal(self) -> _Demand | None:
        with self._guard:
            return self._demands.popleft() if self._demands else None

    def _read_demand(self, demand: _Demand) -> None:
        start = self._clock()
        num_bytes, failure = 0, None
        try:
            for extent in demand.operation:
                began = self._clock()
                count = _read_extent(demand.jobs, extent)
                self._note("read", demand.jobs[extent[0].index], began, count)
                num_bytes += count
        except BaseException as error:
            failure = error  # handed to the thread that waits, whatever it is
        self._leave(start, len(demand.operation), num_bytes)
        demand.results.put(failure)

    def _read_ahead(self, ahead: Ahead) -> None:
        start = self._clock()
        num_bytes = 0
        state: State = "failed"
        try:
            num_bytes = ahead.job.file.read_at(ahead.job.expert, 0, ahead.job.destination.buffers())
            self._note("prefetch", ahead.job, start, num_bytes)
            state = "done"
        except CheckpointError:
            pass
        self._leave(start, 1, num_bytes, ahead=ahead)
        ahead.end(state)

    def _note(self, name: Literal["read", "prefetch"], job: ReadJob, start: float, num_bytes: int) -> None:
        self._telemetry.timeline.add(
            name, start, self._clock(), layer=job.file.layer, expert=job.expert, num_bytes=num_bytes
        )

    def _has_room(self) -> bool:
        """Under the guard: whether another operation may be handed over, beside one of the calling thread's own."""
        return self._outstanding + 1 < self.queue_depth

    def _enter(self) -> None:
        with self._guard:
            self._count_in()

    def _leave(self, start: float, num_reads: int, num_bytes: int, ahead: Ahead | None = None) -> None:
        with self._guard:
            counters = self.counters
            counters.busy_s += self._clock() - start
            counters.num_reads += num_reads
            counters.bytes += num_bytes
            if ahead is not None:
                self._num_ahead_running -= 1
                counters.completed += num_bytes > 0
            self._count_out()

    def _count_in(self) -> None:
        """Under the guard: one operation more is outstanding."""
        if self._outstanding == 0:
            self._active_since = self._clock()
        self._outstanding += 1
        counters = self.counters
        counters.depth_samples += 1
        counters.depth_sum += self._outstanding
        counters.depth_max = max(counters.depth_max, self._outstanding)

    def _count_out(self) -> None:
        self._outstanding -= 1
        if self._outstanding == 0:
            self.counters.active_s += self._clock() - self._active_since


def _read_extent(jobs: Sequence[ReadJob], extent: Extent) -> int:
    """One read call into the destinations of all its segments; returns the payload bytes."""
    first = jobs[extent[0].index]
    buffers: Buffers = []
    for segment in extent:
        if buffers and first.file.gap.nbytes:
            buffers.append(first.file.gap)
        whole = jobs[segment.index].destination.buffers()
        buffers += window(whole, segment.start, segment.end)
    first.file.read_at(first.expert, extent[0].start, buffers)
    return sum(segment.end - segment.start for segment in extent)

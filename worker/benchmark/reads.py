"""How fast demanded experts are read while a model runs, against what the same threads read with nothing else going on.

    decoding   the engine on given ids: what its layers miss is read, the forward waits
    alone      as many threads read records of the same files, each its own, one after another, until as many bytes came

Both sides take turns. No record is read twice on the bare side, and the page cache is passed by where the system allows it;
otherwise a figure may be the memory's and not the disk's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import mlx.core as mx
import numpy as np

from worker.benchmark.engine import Ids, engine_arm
from worker.experts.file import ExpertFile
from worker.model.target import Target

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRates:
    """Bytes per second, one entry per round. `waited`: demanded bytes over the time that forwards waited for them.

    `active`: demanded bytes over the time in which any read was outstanding. `alone`: the same threads, nothing else.
    """

    waited: tuple[float, ...]
    active: tuple[float, ...]
    alone: tuple[float, ...]
    records_per_wait: float
    mean_depth: float

    @property
    def active_ratio(self) -> float:
        return median(a / b for a, b in zip(self.active, self.alone, strict=True))

    @property
    def waited_ratio(self) -> float:
        return median(a / b for a, b in zip(self.waited, self.alone, strict=True))


def compare_reads(
    target: Target,
    prompt: Ids,
    ids_of_round: Sequence[Ids],
    *,
    on_round: Callable[[int], None] = lambda done: None,
    clock: Clock = time.perf_counter,
) -> ReadRates:
    """Decode each round's ids, then read as many bytes with the same threads alone. Mutates: the pools.

    Raises: CheckpointError.
    """
    unread = _records([pool.file for pool in target.pools])
    waited, active, alone = [], [], []
    num_records = num_waits = 0
    depths = []
    for done, ids in enumerate(ids_of_round):
        step = engine_arm("", target).start(prompt)
        target.telemetry.reset(recording=True)
        target.reader.take()
        for token in ids:
            mx.eval(step(mx.array([token])))
        reader, (counters, routings) = target.reader.take(), target.telemetry.take()
        waited.append(reader.bytes / counters["decode"].read_wait_s)
        active.append(reader.bytes / reader.active_s)
        num_records += reader.submitted
        num_waits += sum(routing.num_hits < routing.num_union for routing in routings)
        depths.append(reader.depth_mean or 0.0)
        alone.append(_read_alone(unread, target.reader.num_threads, reader.bytes, clock))
        on_round(done + 1)
    return ReadRates(
        waited=tuple(waited),
        active=tuple(active),
        alone=tuple(alone),
        records_per_wait=num_records / max(1, num_waits),
        mean_depth=float(np.mean(depths)),
    )


def _records(files: Sequence[ExpertFile], seed: int = 0) -> Iterator[tuple[ExpertFile, int]]:
    """Every record of the files once, in random order; then from the start."""
    rng = np.random.default_rng(seed)
    places = [(index, expert) for index, file in enumerate(files) for expert in range(file.num_records)]
    while True:
        for place in rng.permutation(len(places)):
            index, expert = places[place]
            yield files[index], expert


def _read_alone(unread: Iterator[tuple[ExpertFile, int]], num_threads: int, num_bytes: int, clock: Clock) -> float:
    """Bytes per second of so many threads that read whole records until about so many bytes are there."""
    share: list[list[tuple[ExpertFile, int]]] = [[] for _ in range(num_threads)]
    total = 0
    while total < num_bytes or any(not records for records in share):
        file, expert = next(unread)
        min(share, key=len).append((file, expert))
        total += file.payload_bytes
    largest = max(file.payload_bytes for records in share for file, _ in records)
    buffers = [memoryview(bytearray(largest)) for _ in range(num_threads)]

    def read(records: list[tuple[ExpertFile, int]], buffer: memoryview) -> None:
        for file, expert in records:
            file.read_at(expert, 0, [buffer[: file.payload_bytes]])

    threads = [threading.Thread(target=read, args=pair) for pair in zip(share, buffers, strict=True)]
    start = clock()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total / (clock() - start)

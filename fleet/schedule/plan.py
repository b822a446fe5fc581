"""The plan: waiting jobs and the machines' conditions in, starts out. Pure, and asked again after every event.

Jobs run in an order in which a study's variants interleave, each machine beginning elsewhere in it, so that a machine that
slowly grows hot, or an hour at which all are busy, does not favour the variants that happen to be named first. Studies take
turns on a machine. One pass over the waiting jobs finds each machine's best: the cost grows with the jobs, not with jobs
times machines.
"""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.nodes.job import JobId
from fleet.nodes.node import NodeName
from fleet.study.study import StudyId


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that waits. Units: `not_before_s` seconds since 1970.

    `positions` is the number of jobs that its study has per machine, `position` its place among them, `group` names the jobs
    that fit the same machines, `attempts` counts the starts so far.
    """

    job: JobId
    study_id: StudyId
    target: NodeName | None
    group: str
    position: int
    positions: int
    attempts: int = 0
    not_before_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """A machine that could start a job now. `turns` counts, per study, what was started there."""

    name: NodeName
    turns: Mapping[StudyId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start this job on this machine, as its attempt number `number`."""

    job: JobId
    study_id: StudyId
    node: NodeName
    number: int


Key = tuple[int, int, int]
"""Attempts so far, turns of the study on the machine, place in the machine's order: the smallest comes first."""


SHARED_TRIES = 8
"""Of the jobs that any machine may run and that fit the same ones, so many are considered for one machine at a time."""


def interleaved(count: int) -> list[int]:
    """The indices 0..count-1 in bit-reversed order: neighbours in time are far apart in the matrix."""
    bits = max(count - 1, 1).bit_length()
    return sorted(range(count), key=lambda index: int(f"{index:0{bits}b}"[::-1], 2))


def first_position(node: NodeName, positions: int) -> int:
    """Where in the interleaved order a machine begins: its own place, the same every time."""
    return zlib.crc32(node.encode()) % max(positions, 1)


def plan(
    waiting: Iterable[Waiting],
    free: Sequence[Free],
    *,
    fits: Callable[[str, NodeName], bool],
    may_start: Callable[[Waiting, NodeName], bool] = lambda _waiting, _node: True,
    now_s: float,
) -> list[Start]:
    """Give each free machine at most one job, and each job at most one machine.

    Jobs with fewer attempts come first, so one that keeps failing holds up nobody. `fits(group, node)` is asked for jobs
    that any machine may run; `may_start` for a job and a machine that match otherwise.
    """
    own: dict[NodeName, list[Waiting]] = {machine.name: [] for machine in free}
    shared: dict[str, list[Waiting]] = defaultdict(list)
    for entry in waiting:
        if entry.not_before_s > now_s:
            continue
        if entry.target is None:
            shared[entry.group].append(entry)
        elif entry.target in own:
            own[entry.target].append(entry)
    for entries in shared.values():
        entries.sort(key=lambda entry: (entry.attempts, entry.position), reverse=True)  # the first is taken off the end
    starts = []
    for machine in free:
        fitting = [entries for group, entries in shared.items() if entries and fits(group, machine.name)]
        entry = _first(machine, own[machine.name], fitting, may_start)
        if entry is not None:
            starts.append(Start(job=entry.job, study_id=entry.study_id, node=machine.name, number=entry.attempts + 1))
    return starts


def _first(
    machine: Free,
    own: list[Waiting],
    fitting: list[list[Waiting]],
    may_start: Callable[[Waiting, NodeName], bool],
) -> Waiting | None:
    """The machine's first job in order that may start, taken off its list when it is one of the shared ones."""
    offsets = {positions: first_position(machine.name, positions) for positions in {entry.positions for entry in own}}
    candidates: list[tuple[Key, int, Waiting, list[Waiting] | None, int]] = []
    for entry in own:
        place = (entry.position - offsets[entry.positions]) % entry.positions
        key = (entry.attempts, machine.turns.get(entry.study_id, 0), place)
        candidates.append((key, len(candidates), entry, None, 0))
    for entries in fitting:
        for index in range(len(entries) - 1, max(len(entries) - SHARED_TRIES, 0) - 1, -1):
            entry = entries[index]
            key = (entry.attempts, machine.turns.get(entry.study_id, 0), entry.position)
            candidates.append((key, len(candidates), entry, entries, index))
    heapq.heapify(candidates)
    while candidates:
        _, _, entry, entries, index = heapq.heappop(candidates)
        if may_start(entry, machine.name):
            if entries is not None:
                del entries[index]
            return entry
    return None

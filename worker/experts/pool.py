"""The resident pool of one layer: which expert sits in which slot, and how a missing one gets in.

The one rule that keeps streaming exact: a slot that an un-evaluated graph may still read is never overwritten. The pool
keeps the last output that read its slots and evaluates it before it loads anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.contract.errors import TaskError
from worker.experts.counters import Telemetry
from worker.experts.eviction import EvictionPolicy, Experts
from worker.experts.file import ExpertFile
from worker.experts.prefetch import Prefetcher, Staged
from worker.experts.reader import Reader, ReadJob
from worker.experts.slots import SlotArrays

ABSENT = -1


class Admitted(NamedTuple):
    """Of the distinct experts of a forward: how many were there, and how many were on their way. The rest was read."""

    num_hits: int
    num_late: int


class LayerPool:
    """The slots of one layer. Owns the slot map and the eviction state; shares the reader and the telemetry."""

    def __init__(
        self,
        *,
        layer: int,
        num_experts: int,
        slots: SlotArrays,
        file: ExpertFile,
        reader: Reader,
        policy: EvictionPolicy,
        telemetry: Telemetry,
        prefetcher: Prefetcher | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.layer, self.num_experts = layer, num_experts
        self.slots, self.file = slots, file
        self.telemetry = telemetry
        self._reader, self._policy, self._clock = reader, policy, clock
        self.prefetcher = prefetcher
        self._state: Any = policy.start(num_experts, slots.num_slots)
        self.slot_of: NDArray[np.int32] = np.full(num_experts, ABSENT, dtype=np.int32)
        self.expert_at: NDArray[np.int32] = np.full(slots.num_slots, ABSENT, dtype=np.int32)
        self.pinned: NDArray[np.bool_] = np.zeros(num_experts, dtype=np.bool_)
        self._unevaluated: mx.array | None = None
        self._device_map: mx.array | None = None
        self.holds_all = False
        self.on_admit: Callable[[int, int, int], None] | None = None
        """Told (layer, distinct experts, hits) after each admission of a forward."""

    @property
    def num_slots(self) -> int:
        return self.slots.num_slots

    @property
    def resident(self) -> Experts:
        """The experts that are in a slot now, ascending."""
        return np.flatnonzero(self.slot_of != ABSENT)

    @property
    def num_unpinned_slots(self) -> int:
        return self.num_slots - int(self.pinned.sum())

    def fits(self, experts: Experts) -> bool:
        """Whether these distinct experts can be resident at once, beside the pinned ones that are not among them."""
        return experts.size - int(self.pinned[experts].sum()) <= self.num_unpinned_slots

    def load_all(self) -> None:
        """Make every expert resident, expert e in slot e, for good. Needs as many slots as experts."""
        assert self.num_slots == self.num_experts
        self._load(np.arange(self.num_experts), np.arange(self.num_experts, dtype=np.int32), {}, {}, None)
        self.holds_all = True

    def admit(self, experts: Experts, *, on_submitted: Callable[[], None] | None = None) -> Admitted:
        """Make these distinct experts resident together and say how many already were.

        `on_submitted` is called once, when every read is on its way. Mutates: slots, slot map, eviction state.
        Raises: CheckpointError when a record cannot be read, after which the experts that were being loaded are absent;
        TaskError when they do not fit beside the pinned ones.
        """
        resident = self.slot_of[experts] != ABSENT
        missing = experts[~resident]
        admitted = Admitted(experts.size - missing.size, 0)
        if missing.size:
            admitted = self._replace(missing, experts, on_submitted)
        elif on_submitted is not None:
            on_submitted()
        self.used(experts)
        if self.on_admit is not None:
            self.on_admit(self.layer, experts.size, experts.size - missing.size)
        return admitted

    def device_map(self) -> mx.array:
        """The slot of every expert as the device sees it now; an absent expert has slot 0. Shapes: [num_experts]."""
        if self._device_map is None:
            self._device_map = self.slots.map_experts(self.slot_of)
        return self._device_map

    def used(self, experts: Experts) -> None:
        """Tell the eviction policy that a forward used these resident, distinct experts."""
        self._state = self._policy.access(self._state, experts)

    def forget_reader(self) -> None:
        """The last output that would have read the slots was given up: nobody will evaluate it."""
        self._unevaluated = None

    def will_be_read_by(self, output: mx.array) -> None:
        """Remember that evaluating `output` reads the slots as they are now."""
        self._unevaluated = output

    def pin(self, experts: Experts) -> None:
        """Keep these experts resident from now on, loading them where needed. Raises: TaskError when too many."""
        if int(self.pinned.sum()) + experts.size >= self.num_slots:
            raise TaskError(
                f"pinning {experts.size} experts leaves no free slot of {self.num_slots} in layer {self.layer}",
                "pin fewer, or set more slots_per_layer",
            )
        self.admit(experts)
        self.pinned[experts] = True

    def unpin(self) -> None:
        """Let every pinned expert be evicted again."""
        self.pinned[:] = False

    def check_integrity(self) -> None:
        """Assert that the slot map and its inverse agree and that what is pinned is resident."""
        for slot, expert in enumerate(self.expert_at):
            assert expert == ABSENT or self.slot_of[expert] == slot
        assert (self.slot_of != ABSENT).sum() == (self.expert_at != ABSENT).sum()
        assert (self.slot_of[self.pinned] != ABSENT).all()

    def _replace(self, missing: Experts, needed: Experts, on_submitted: Callable[[], None] | None) -> Admitted:
        there, late = self.prefetcher.claim(self.layer, missing) if self.prefetcher else ({}, {})
        start = self._clock()
        try:
            slots = self._make_room(missing.size, needed)
            if there and self.prefetcher:
                self.prefetcher.counters.route_s += self._clock() - start
            self._load(missing, slots, there, late, on_submitted)
        finally:
            for staged in (*there.values(), *late.values()):
                assert self.prefetcher is not None
                self.prefetcher.finish(staged)
                self.prefetcher.give_back(staged)
        self._state = self._policy.admit(self._state, missing)
        return Admitted(needed.size - missing.size + len(there), len(late))

    def _make_room(self, count: int, needed: Experts) -> NDArray[np.int32]:
        """Slots for so many absent experts, free ones first. Mutates: what must go is absent when this returns."""
        free = np.flatnonzero(self.expert_at == ABSENT)[:count].astype(np.int32)
        num_victims = count - free.size
        if not num_victims:
            return free
        evictable = self.slot_of != ABSENT
        evictable[needed] = False
        candidates = np.flatnonzero(evictable & ~self.pinned)
        if candidates.size < num_victims:
            raise TaskError(
                f"layer {self.layer} needs {needed.size} experts at once beside {int(self.pinned.sum())} pinned ones, "
                f"the pool has {self.num_slots} slots",
                "pin fewer experts, or set more slots_per_layer",
            )
        self._state, victims = self._policy.evict(self._state, candidates, num_victims)
        freed = self.slot_of[victims]
        self.slot_of[victims] = ABSENT
        self.expert_at[freed] = ABSENT
        return np.concatenate([free, freed])

    def _load(
        self,
        experts: Experts,
        slots: NDArray[np.int32],
        there: dict[int, Staged],
        late: dict[int, Staged],
        on_submitted: Callable[[], None] | None,
    ) -> None:
        """Bring absent experts into these slots: read on demand, but for those that were read ahead, or are being."""
        start = self._clock()
        if self._unevaluated is not None:
            mx.eval(self._unevaluated)
            self._unevaluated = None
        slot_for = dict(zip(experts.tolist(), slots.tolist(), strict=True))
        self._read(
            {expert: slot for expert, slot in slot_for.items() if expert not in there and expert not in late},
            on_submitted,
        )
        self._promote(slot_for, there, late)
        self.slot_of[experts] = slots
        self.expert_at[slots] = experts
        self._device_map = self.slots.map_experts(self.slot_of)
        end = self._clock()
        self.telemetry.current.read_wait_s += end - start
        self.telemetry.timeline.add("read_wait", start, end, layer=self.layer)

    def _read(self, slot_for: dict[int, int], on_submitted: Callable[[], None] | None = None) -> None:
        wanted = list(slot_for.items())
        at_once = self.slots.max_at_once or max(len(wanted), 1)
        try:
            for begin in range(0, len(wanted), at_once):
                some = wanted[begin : begin + at_once]
                jobs = [ReadJob(self.file, expert, self.slots.destination(slot)) for expert, slot in some]
                self._reader.read(jobs, on_submitted=on_submitted)
                on_submitted = None
                self.slots.settle()
        except BaseException:
            self.slots.discard()
            raise
        if on_submitted is not None:
            on_submitted()

    def _promote(self, slot_for: dict[int, int], there: dict[int, Staged], late: dict[int, Staged]) -> None:
        """Copy what was read ahead into slots: what arrived first, then what has to be waited for."""
        failed = {}
        for expert, staged in (there | late).items():
            assert self.prefetcher is not None
            if self.prefetcher.finish(staged):
                start = self._clock()
                self.slots.place(slot_for[expert], staged.buffer.memory)
                self.prefetcher.counters.place_s += self._clock() - start
            else:
                failed[expert] = slot_for[expert]
        if failed:
            self._read(dict(sorted(failed.items())))


def distinct(ids: NDArray[np.int64], num_experts: int) -> Experts:
    """The distinct experts of one layer's routing, ascending. Shapes: [width, experts per token] -> [union]."""
    if ids.shape[0] == 1:
        return np.sort(ids[0])
    used = np.zeros(num_experts, dtype=np.bool_)
    used[ids] = True
    return np.flatnonzero(used)

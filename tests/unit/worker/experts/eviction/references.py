"""Each policy once more, with plain lists and dictionaries: slow, and short enough to be seen to be right.

A reference serves whole forwards: `serve(needed, pinned)` leaves in `resident` what the pool must then hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


class Reference:
    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.resident: set[int] = set()
        self.now = 0

    def serve(self, needed: set[int], pinned: Iterable[int] = ()) -> None:
        protected = needed | set(pinned)
        missing = sorted(needed - self.resident)
        for _ in range(len(self.resident) + len(missing) - self.num_slots):
            victim = self.choose(sorted(self.resident - protected))
            self.resident.remove(victim)
            self.left(victim)
        self.now += 1
        for expert in missing:
            self.resident.add(expert)
            self.entered(expert)
        for expert in sorted(needed):
            self.used(expert)

    def choose(self, candidates: list[int]) -> int:
        raise NotImplementedError

    def used(self, expert: int) -> None: ...

    def entered(self, expert: int) -> None: ...

    def left(self, expert: int) -> None: ...


class LruReference(Reference):
    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.last_use: dict[int, int] = {}

    def choose(self, candidates):
        return min(candidates, key=lambda expert: (self.last_use.get(expert, 0), expert))

    def used(self, expert):
        self.last_use[expert] = self.now


class LfuReference(Reference):
    half_life = 64

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.uses: dict[int, list[int]] = {}

    def choose(self, candidates):
        def count(expert: int) -> float:
            return math.fsum(0.5 ** ((self.now - at) / self.half_life) for at in self.uses.get(expert, []))

        return min(candidates, key=lambda expert: (count(expert), expert))

    def used(self, expert):
        self.uses.setdefault(expert, []).append(self.now)


class LfudaReference(Reference):
    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.age = 0
        self.num_uses: dict[int, int] = {}
        self.key: dict[int, int] = {}
        self.last_use: dict[int, int] = {}

    def choose(self, candidates):
        return min(candidates, key=lambda expert: (self.key[expert], self.last_use[expert], expert))

    def entered(self, expert):
        self.num_uses[expert] = 0

    def used(self, expert):
        self.num_uses[expert] += 1
        self.key[expert] = self.num_uses[expert] + self.age
        self.last_use[expert] = self.now

    def left(self, expert):
        self.age = self.key[expert]


class S3FifoReference(Reference):
    """The paper's algorithm 1, its queues as lists whose first entry is the oldest."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.small: list[int] = []
        self.main: list[int] = []
        self.ghost: list[int] = []
        self.freq: dict[int, int] = {}
        self.small_target = max(1, int(0.1 * num_slots))

    def choose(self, candidates):
        while True:
            in_small = [expert for expert in self.small if expert in candidates]
            main_has_none = not set(self.main) & set(candidates)
            if in_small and (len(self.small) >= self.small_target or main_has_none):
                victim = self.evict_small(in_small)
                if victim is not None:
                    return victim
            else:
                return self.evict_main(candidates)

    def evict_small(self, in_small: list[int]) -> int | None:
        for expert in in_small:
            self.small.remove(expert)
            if self.freq[expert] > 1:
                self.main.append(expert)
                self.freq[expert] = 0
            else:
                self.ghost.append(expert)
                return expert
        return None

    def evict_main(self, candidates: list[int]) -> int:
        while True:
            expert = next(expert for expert in self.main if expert in candidates)
            self.main.remove(expert)
            if self.freq[expert] == 0:
                return expert
            self.main.append(expert)
            self.freq[expert] -= 1

    def entered(self, expert):
        del self.ghost[: max(0, len(self.ghost) - (self.num_slots - self.small_target))]
        self.freq[expert] = -1
        if expert in self.ghost:
            self.ghost.remove(expert)
            self.main.append(expert)
        else:
            self.small.append(expert)

    def used(self, expert):
        self.freq[expert] = min(self.freq[expert] + 1, 3)


REFERENCES: dict[str, type[Reference]] = {
    "lru": LruReference,
    "lfu": LfuReference,
    "lfuda": LfudaReference,
    "s3-fifo": S3FifoReference,
}

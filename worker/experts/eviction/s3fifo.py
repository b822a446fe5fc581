"""S3-FIFO: a small queue on probation, a main queue, and the names of those that lately failed the probation.

    miss             -> small, or main when its name is a ghost's
    small's oldest   -> main when it was used twice more, else evicted and a ghost
    main's oldest    -> main's end with one use less when it was used, else evicted

Source: Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction" (SOSP 2023), algorithm 1. The
paper serves one request after the other. Here a forward needs several experts at once: its evictions come first, one
after the other as in the paper, then its admissions, then one use of each. Experts that may not leave (needed now, or
pinned) are passed over and keep their places. So, unlike in the paper, the main queue may have nobody to give while the
small one is below its share: then the small one gives up its oldest all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.experts.eviction.policy import Experts

SMALL_RATIO = 0.1
"""Share of the slots that the small queue may fill before it is the one that gives up an expert (the paper's)."""
MOVE_AFTER_USES = 2
"""Uses after the first, while in the small queue, that earn a place in the main queue (the paper's)."""
MAX_USES = 3
"""Counting stops here: the paper has two bits per object."""

ABSENT, SMALL, MAIN = 0, 1, 2
NEVER = -1


@dataclass(frozen=True, slots=True)
class S3FifoState:
    """`queue`, `place` (smaller is older) and `uses` per expert; `ghost` is the place in the ghost queue, or NEVER.

    `uses` does not count the use that an expert was admitted for: it starts at -1.
    """

    num_small_slots: int
    num_ghosts: int
    clock: int
    queue: NDArray[np.int8]
    place: NDArray[np.int64]
    uses: NDArray[np.int8]
    ghost: NDArray[np.int64]


class S3Fifo:
    """Evict from the small queue while it has its share or more, else from the main queue, else from the small one."""

    name = "s3-fifo"

    def start(self, num_experts: int, num_slots: int) -> S3FifoState:
        num_small = max(1, int(num_slots * SMALL_RATIO))
        return S3FifoState(
            num_small_slots=num_small,
            num_ghosts=num_slots - num_small,
            clock=0,
            queue=np.full(num_experts, ABSENT, dtype=np.int8),
            place=np.zeros(num_experts, dtype=np.int64),
            uses=np.zeros(num_experts, dtype=np.int8),
            ghost=np.full(num_experts, NEVER, dtype=np.int64),
        )

    def admit(self, state: S3FifoState, experts: Experts) -> S3FifoState:
        queue, place, uses, ghost = state.queue.copy(), state.place.copy(), state.uses.copy(), state.ghost.copy()
        queue[experts] = np.where(ghost[experts] == NEVER, SMALL, MAIN)
        place[experts] = np.arange(state.clock, state.clock + experts.size)
        uses[experts] = -1
        ghost[experts] = NEVER
        return _next(state, state.clock + experts.size, queue, place, uses, ghost)

    def access(self, state: S3FifoState, experts: Experts) -> S3FifoState:
        uses = state.uses.copy()
        uses[experts] = np.minimum(uses[experts] + 1, MAX_USES)
        return _next(state, state.clock, state.queue, state.place, uses, state.ghost)

    def evict(self, state: S3FifoState, candidates: Experts, count: int) -> tuple[S3FifoState, Experts]:
        queue, place, uses, ghost = state.queue.copy(), state.place.copy(), state.uses.copy(), state.ghost.copy()
        candidates = candidates[np.argsort(place[candidates])]
        from_small, promoted = _walk_small(state, candidates, count)
        clock = state.clock
        if promoted.size:
            queue[promoted] = MAIN
            uses[promoted] = 0
            place[promoted] = np.arange(clock, clock + promoted.size)
            clock += promoted.size
        queue[from_small] = ABSENT
        victims, failed = from_small, from_small
        main = np.concatenate([candidates[state.queue[candidates] == MAIN], promoted])
        if victims.size < count and main.size:
            from_main, passed, uses[main] = _walk_main(main, uses[main], count - victims.size)
            place[passed] = np.arange(clock, clock + passed.size)
            clock += passed.size
            victims = np.concatenate([victims, from_main])
        if victims.size < count:
            small = candidates[queue[candidates] == SMALL]
            rest, also_failed, moved = _empty_small(small, uses[small] >= MOVE_AFTER_USES, count - victims.size)
            queue[moved], uses[moved], place[moved] = MAIN, 0, np.arange(clock, clock + moved.size)
            clock += moved.size
            victims, failed = np.concatenate([victims, rest]), np.concatenate([failed, also_failed])
        queue[victims] = ABSENT
        ghost[failed] = np.arange(clock, clock + failed.size)
        _forget_oldest(ghost, state.num_ghosts)
        return _next(state, clock + failed.size, queue, place, uses, ghost), victims


def _walk_small(state: S3FifoState, candidates: Experts, count: int) -> tuple[Experts, Experts]:
    """Who leaves the small queue for good, and who moves to the main queue, oldest first.

    The queue's length is compared with its share before each eviction; the walk then goes on to the next expert that
    has not earned its place. These evictions precede those from the main queue: the small one only shrinks.
    """
    small = candidates[state.queue[candidates] == SMALL]
    length = np.count_nonzero(state.queue == SMALL)
    if not small.size or length < state.num_small_slots:
        return small[:0], small[:0]
    earned = state.uses[small] >= MOVE_AFTER_USES
    failed = np.flatnonzero(~earned)[:count]
    # Before eviction k the walk has removed everyone up to and including the (k-1)th that failed.
    removed = np.concatenate([[0], failed[:-1] + 1]) if failed.size else failed
    num_evicted = int(np.count_nonzero(length - removed >= state.num_small_slots))
    if num_evicted == count:
        end = int(failed[count - 1]) + 1
    elif num_evicted < failed.size or length - _end(failed) < state.num_small_slots:
        end = int(failed[num_evicted - 1]) + 1
    else:
        end = small.size  # the last walk found nobody to evict and moved all it saw
    walked = small[:end]
    return walked[~earned[:end]][:num_evicted], walked[earned[:end]]


def _end(failed: NDArray[np.int64]) -> int:
    return int(failed[-1]) + 1 if failed.size else 0


def _walk_main(main: Experts, uses: NDArray[np.int8], count: int) -> tuple[Experts, Experts, NDArray[np.int8]]:
    """Who leaves the main queue, who was passed and goes to its end (in the new order), and everybody's uses left.

    When fewer than `count` are there, all leave. There is at least one.

    An expert with u uses left survives u rounds, so the victims are the first `count` by (uses, place). The hand stops
    at the last victim; those before it were passed in that round, those behind it in the round before.
    """
    order = np.argsort(uses, kind="stable")
    victims = order[:count]
    last, rounds = int(victims[-1]), int(uses[victims[-1]])
    index = np.arange(main.size)
    survives = np.ones(main.size, dtype=np.bool_)
    survives[victims] = False
    before, behind = survives & (index < last), survives & (index > last)
    left = uses.copy()
    left[before] -= rounds + 1
    left[behind] -= rounds
    passed = [main[before]] if rounds == 0 else [main[behind], main[before]]
    return main[victims], np.concatenate(passed), left


def _empty_small(small: Experts, earned: NDArray[np.bool_], count: int) -> tuple[Experts, Experts, Experts]:
    """Who leaves when the main queue has nobody to give, which of them failed the probation, and who moves to main.

    The walk moves those that earned their place until it meets one that failed, who leaves. The next to leave are those
    just moved, for the main queue has somebody again; after them the walk goes on.
    """
    walk = np.cumsum(~earned) - ~earned  # the number of the walk that meets each
    order = np.lexsort((earned, walk))
    victims, stay = order[:count], order[count:]
    moved = stay[walk[stay] == walk[victims[-1]]]
    return small[victims], small[victims[~earned[victims]]], small[moved]


def _forget_oldest(ghost: NDArray[np.int64], limit: int) -> None:
    """Keep the newest `limit` ghosts. Mutates: `ghost`."""
    names = np.flatnonzero(ghost != NEVER)
    if names.size > limit:
        ghost[names[np.argsort(ghost[names])[: names.size - limit]]] = NEVER


def _next(
    state: S3FifoState,
    clock: int,
    queue: NDArray[np.int8],
    place: NDArray[np.int64],
    uses: NDArray[np.int8],
    ghost: NDArray[np.int64],
) -> S3FifoState:
    return S3FifoState(state.num_small_slots, state.num_ghosts, clock, queue, place, uses, ghost)

"""Bringing the target's caches to the accepted prefix: pick a recorded state, or restore a snapshot and replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from worker.contract.task import Rollback
from worker.measure.stages import StageClock
from worker.model.cache import TargetCache
from worker.model.target import Target


@dataclass(frozen=True, slots=True)
class Committed:
    """How the caches got to the accepted prefix: directly, or by running this many tokens again."""

    num_direct_commits: int
    num_replayed_tokens: int


NOT_COMMITTED = Committed(0, 0)


class Rewind(Protocol):
    """One way of rolling back. `before` is called ahead of a verify forward, `commit` after the accept decision."""

    def before(self) -> None: ...

    def commit(self, tokens: mx.array, num_positions: int) -> Committed:
        """Keep the first `num_positions` of the verified tokens. Shapes: tokens [width]. Mutates: the caches."""
        ...


class Capture:
    """Record the recurrent state at every position of the verify forward and pick one: no forward is repeated."""

    def __init__(self, cache: TargetCache, stages: StageClock) -> None:
        self._cache, self._stages = cache, stages
        cache.set_recording(True)

    def before(self) -> None:
        """Nothing to keep: the verify forward records."""

    def commit(self, tokens: mx.array, num_positions: int) -> Committed:
        with self._stages.stage("commit") as stage:
            self._cache.commit(num_positions, forward_width=tokens.shape[0])
            stage.barrier(self._cache.arrays())
        return Committed(1, 0)


class Replay:
    """Keep references before the verify forward; after a rejection restore them and run the accepted prefix again.

    The reference that `Capture` must equal (tests/unit/worker/mtp/test_rollback.py).
    """

    def __init__(self, target: Target, cache: TargetCache, stages: StageClock) -> None:
        self._target, self._cache, self._stages = target, cache, stages
        cache.set_recording(False)

    def before(self) -> None:
        with self._stages.stage("snapshot") as stage:
            self._snapshot = self._cache.snapshot()
            stage.barrier(self._cache.arrays())

    def commit(self, tokens: mx.array, num_positions: int) -> Committed:
        if num_positions == tokens.shape[0]:
            return Committed(1, 0)
        with self._stages.stage("commit"):
            self._cache.restore(self._snapshot)
        with self._stages.stage("replay") as stage:
            hidden = self._target.forward(tokens[:num_positions], self._cache, "decode")
            mx.eval(hidden, self._cache.arrays())
            stage.barrier(hidden)
        return Committed(0, num_positions)


def make_rewind(rollback: Rollback, target: Target, cache: TargetCache, stages: StageClock) -> Rewind:
    return Capture(cache, stages) if rollback == "capture" else Replay(target, cache, stages)

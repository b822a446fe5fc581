"""Reading ahead of need: predictions become reads into staging buffers, and what arrives in time becomes hits.

    predicted experts of the next layer -> submit -> staging buffer -> (its routing is known) -> claim -> slot

A prediction never decides what is computed. What it may cost is bounded: at most as many buffers as were given, at most half
of the reader's threads, and a layer whose predictions are seldom used stops predicting until it is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from worker.experts.counters import Telemetry
from worker.experts.eviction import Experts
from worker.experts.file import ExpertFile
from worker.experts.reader import Ahead, Reader, ReadJob
from worker.experts.staging import StagingBuffer, StagingBuffers

MIN_USEFUL_RATIO = 0.3
"""A layer that uses less of what is read ahead for it stops predicting."""
RETRY_FORWARDS = 32
"""After so many forwards without predictions a layer tries one again."""
_NEWEST_WEIGHT = 0.1


@dataclass(slots=True)
class LayerForesight:
    """How well one layer's routing was foreseen. Shapes: `right_by_rank` [experts per token]."""

    right_by_rank: NDArray[np.int64]
    num_predictions: int = 0
    num_routed: int = 0
    num_routed_predicted: int = 0
    num_submitted: int = 0
    num_hits: int = 0
    num_late: int = 0


@dataclass(slots=True)
class PrefetchCounters:
    """Sums since the last reset. Units: seconds of the host's main thread, in which nothing overlaps."""

    predict_s: float = 0.0
    submit_s: float = 0.0
    take_s: float = 0.0
    route_s: float = 0.0
    place_s: float = 0.0
    window_s: float = 0.0
    num_windows: int = 0
    layers: dict[tuple[int, int], LayerForesight] = field(default_factory=dict)
    """By layer and forward width."""


@dataclass(slots=True)
class Staged:
    """One record that is or will be in a staging buffer."""

    ahead: Ahead
    buffer: StagingBuffer
    submitted_at: float


@dataclass(slots=True)
class _Gate:
    """Whether a layer predicts, by how much of what was read ahead for it was used."""

    useful: float = 1.0
    num_skipped: int = 0

    def opens(self) -> bool:
        if self.useful >= MIN_USEFUL_RATIO:
            return True
        self.num_skipped = (self.num_skipped + 1) % RETRY_FORWARDS
        return self.num_skipped == 0

    def learn(self, used_ratio: float) -> None:
        self.useful += _NEWEST_WEIGHT * (used_ratio - self.useful)


class Prefetcher:
    """One for all layers. Owns the staging buffers' contents; used from the thread that runs the model."""

    def __init__(
        self,
        reader: Reader,
        staging: StagingBuffers,
        telemetry: Telemetry,
        *,
        ranks: int,
        experts_per_token: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`ranks` of a token's predicted experts are read ahead; all `experts_per_token` are compared with the routing."""
        self.clock = clock
        self.ranks, self.experts_per_token = min(ranks, experts_per_token), experts_per_token
        self.counters = PrefetchCounters()
        self._reader, self._staging, self._telemetry = reader, staging, telemetry
        self._staged: dict[tuple[int, int], Staged] = {}
        self._width = 1
        self._gates: dict[int, _Gate] = {}
        self._expected: dict[int, NDArray[np.int64]] = {}
        self._given_up: dict[int, set[int]] = {}
        self._dropped: dict[int, set[int]] = {}
        self._submitted: dict[int, set[int]] = {}

    def wants(self, layer: int) -> bool:
        """Whether to predict for this layer in the current forward. Mutates: the layer's gate."""
        if self._telemetry.phase == "prefill":
            return False
        return self._gates.setdefault(layer, _Gate()).opens()

    def submit(self, layer: int, file: ExpertFile, predicted: NDArray[np.int64], absent: NDArray[np.bool_]) -> None:
        """Have the most probable absent experts of a layer read ahead.

        Shapes: `predicted` [width, experts per token], most probable first; `absent` [num_experts].
        """
        start = self.clock()
        self._width = predicted.shape[0]
        self._expected[layer] = predicted
        self._given_up[layer], self._dropped[layer], self._submitted[layer] = set(), set(), set()
        counters = self._telemetry.current
        by_rank = dict.fromkeys(predicted[:, : self.ranks].T.reshape(-1).tolist())
        for expert in by_rank:
            if not absent[expert]:
                continue
            counters.num_predicted += 1
            if (layer, expert) in self._staged:
                continue
            if self._read_ahead(layer, file, expert):
                counters.num_prefetch_submitted += 1
                self._submitted[layer].add(expert)
                self._foresight(layer).num_submitted += 1
            else:
                counters.num_prefetch_dropped += 1
                self._dropped[layer].add(expert)
        self.counters.submit_s += self.clock() - start

    def compare(self, layer: int, ids: NDArray[np.int64], experts: Experts) -> None:
        """The layer's routing is known: tally the prediction, and call back what is not needed and has not begun.

        Shapes: `ids` [width, experts per token]; `experts` the distinct ones.
        """
        self._width = ids.shape[0]
        needed = set(experts.tolist())
        predicted = self._expected.pop(layer, None)
        if predicted is None:
            self._given_up.pop(layer, None)
            self._dropped.pop(layer, None)
        else:
            foresight = self._foresight(layer)
            foresight.num_predictions += 1
            foresight.num_routed += len(needed)
            foresight.num_routed_predicted += len(needed & set(predicted[:, : self.ranks].reshape(-1).tolist()))
            foresight.right_by_rank += (predicted[:, :, None] == ids[:, None, :]).any(axis=2).sum(axis=0)
        now = self.clock()
        for key, staged in list(self._staged.items()):
            if key[0] != layer:
                continue
            if key[1] in needed:
                self.counters.window_s += now - staged.submitted_at
                self.counters.num_windows += 1
            elif self._reader.recall(staged.ahead):
                self._telemetry.current.num_prefetch_cancelled += 1
                self._release(self._staged.pop(key))
        if submitted := self._submitted.pop(layer, None):
            self._gates.setdefault(layer, _Gate()).learn(len(submitted & needed) / len(submitted))

    def claim(self, layer: int, missing: Experts) -> tuple[dict[int, Staged], dict[int, Staged]]:
        """Say for each missing expert why it missed; hand over what is there, and what is still on its way.

        Whoever claims must `give_back` each. Read ahead and there: a hit.
        """
        start = self.clock()
        there, late = {}, {}
        for expert in missing.tolist():
            staged = self._staged.pop((layer, expert), None)
            if staged is not None and staged.ahead.state == "failed":
                self._release(staged)
                self._dropped.setdefault(layer, set()).add(expert)
                staged = None
            if staged is None:
                self._count_miss(layer, expert)
            elif staged.ahead.state == "done":
                there[expert] = staged
            else:
                late[expert] = staged
        if there or late:
            counters, foresight = self._telemetry.current, self._foresight(layer)
            counters.num_prefetch_hits += len(there)
            counters.num_misses_predicted_late += len(late)
            foresight.num_hits += len(there)
            foresight.num_late += len(late)
        self.counters.take_s += self.clock() - start
        return there, late

    def finish(self, staged: Staged) -> bool:
        """Wait for a read that is on its way and say whether it succeeded."""
        self._reader.finish(staged.ahead)
        return staged.ahead.state == "done"

    def give_back(self, staged: Staged) -> None:
        """Its record is in a slot, or nobody wants it any more."""
        self._telemetry.current.num_prefetch_loads += staged.ahead.state == "done"
        self._release(staged)

    def clear(self) -> None:
        """Give up everything that was read ahead and not used: a generation is over."""
        for key, staged in list(self._staged.items()):
            del self._staged[key]
            if self._reader.recall(staged.ahead):
                self._telemetry.current.num_prefetch_cancelled += 1
                self._release(staged)
            else:
                self._reader.finish(staged.ahead)
                self._evict(staged)
        self._expected, self._given_up, self._dropped, self._submitted = {}, {}, {}, {}

    def take(self) -> PrefetchCounters:
        """Hand over what was counted, and start anew."""
        taken, self.counters = self.counters, PrefetchCounters()
        return taken

    def _read_ahead(self, layer: int, file: ExpertFile, expert: int) -> bool:
        if not self._staging.has_free and not self._make_room():
            return False
        buffer = self._staging.acquire()
        ahead = self._reader.read_ahead(ReadJob(file, expert, buffer))
        if ahead is None:
            self._staging.release(buffer)
            return False
        self._staged[layer, expert] = Staged(ahead, buffer, self.clock())
        return True

    def _make_room(self) -> bool:
        """Give up the record that has waited longest for its use."""
        for (layer, expert), staged in self._staged.items():
            if staged.ahead.state in ("done", "failed"):
                del self._staged[layer, expert]
                self._given_up.setdefault(layer, set()).add(expert)
                self._evict(staged)
                return True
        return False

    def _evict(self, staged: Staged) -> None:
        done = staged.ahead.state == "done"
        self._telemetry.current.num_prefetch_loads += done
        self._telemetry.current.num_prefetch_evicted += done
        self._release(staged)

    def _release(self, staged: Staged) -> None:
        self._staging.release(staged.buffer)

    def _count_miss(self, layer: int, expert: int) -> None:
        counters = self._telemetry.current
        if expert in self._given_up.get(layer, ()):
            counters.num_misses_predicted_evicted += 1
        elif expert in self._dropped.get(layer, ()):
            counters.num_misses_predicted_dropped += 1
        else:
            counters.num_misses_unpredicted += 1

    def _foresight(self, layer: int) -> LayerForesight:
        key = layer, self._width
        found = self.counters.layers.get(key)
        if found is None:
            found = self.counters.layers[key] = LayerForesight(np.zeros(self.experts_per_token, dtype=np.int64))
        return found

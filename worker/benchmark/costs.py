"""What speculation's parts cost on this machine, timed one by one: verify forwards of every width, a draft, a head sync.

The forwards decode the ids that greedy decoding emitted, from the end of the prompt on, with every token accepted: the
routing is the prompt's own, and each width meets the pool as the others left it. The widths take turns, in alternating
order, so that a slow drift of the machine falls on all of them alike. Every timed piece ends with a barrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median

import mlx.core as mx

from worker.benchmark.measure import Record
from worker.benchmark.session import Session, TokenizedPrompt
from worker.contract.task import MAX_VERIFY_WIDTH, VerifyMode
from worker.decode.prefill import prefill
from worker.experts.pool import LayerPool
from worker.mtp.draft import draft
from worker.mtp.generate import prefill_head
from worker.mtp.predict import Costs
from worker.mtp.verify import verify

ROUNDS = 5
"""Timed forwards of each width, after one that is not: the first of a width may compile its kernels."""
HEAD_ROUNDS = 11

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    seconds: float
    hidden: mx.array
    choices: mx.array


def measure_costs(
    session: Session, prompt: TokenizedPrompt, records: Sequence[Record], clock: Clock = time.perf_counter
) -> Costs:
    """Time the parts after the repeats of this prompt, whose records say what was emitted and accepted.

    Mutates: pools, the head's cache. Counts go to no repeat: telemetry and reader are emptied. Raises: CheckpointError.
    """
    session.target.telemetry.reset()
    widths = measurable_widths(session)
    measured = [record for record in records if record.measurement.kind == "measured"]
    ids = next(record.generation.token_ids for record in measured if record.measurement.path == "greedy")
    forced = _Forced(session, prompt, ids * -(-widths[-1] // len(ids)), clock)
    seconds: dict[int, list[float]] = {width: [] for width in widths}
    for done in range(ROUNDS + 1):
        for width in widths if done % 2 == 0 else reversed(widths):
            seconds[width].append(forced.verify(width).seconds)
    accepted = [step.num_accepted for record in measured for step in record.steps]
    head_sync_s, draft_s = _head_costs(session, forced, 1 + round(mean(accepted)) if accepted else 1, clock)
    session.target.telemetry.reset()
    session.target.reader.take()
    return Costs(
        verify_s=tuple(median(seconds[width][1:]) for width in widths), head_sync_s=head_sync_s, draft_s=draft_s
    )


def measurable_widths(session: Session) -> tuple[int, ...]:
    """The widths whose forward fits every pool whatever it routes to; under a memory budget up to the task's own.

    The budget's working memory holds the recorded states of `verify_width` positions, not those of a wider forward.
    """
    widest = MAX_VERIFY_WIDTH if session.task.memory_budget_bytes is None else session.task.verify_width
    return tuple(
        width
        for width in range(1, widest + 1)
        if all(_fits(pool, width * session.manifest.experts_per_token) for pool in session.target.pools)
    )


def _fits(pool: LayerPool, num_routed: int) -> bool:
    """Whether any so many experts can be resident at once, beside the pinned ones."""
    return pool.num_slots == pool.num_experts or num_routed <= pool.num_unpinned_slots


class _Forced:
    """Verify forwards over given ids, one after another; when too few are left, from the end of the prompt again."""

    def __init__(self, session: Session, prompt: TokenizedPrompt, ids: tuple[int, ...], clock: Clock) -> None:
        self._target = session.target
        self._mode: VerifyMode = session.task.verify_mode
        self._ids, self._clock = ids, clock
        self._cache = self._target.new_cache()
        self.prompt_hidden = prefill(self._target, prompt.token_ids, self._cache, session.task.prefill_chunk_tokens)
        self.request = session.request(prompt, len(ids))
        self._cache.set_recording(True)
        self._start, self._at = self._cache.snapshot(), 0

    def verify(self, width: int) -> _Timed:
        """Time the next `width` ids and commit them all. Mutates: the pools."""
        if self._at + width > len(self._ids):
            self._cache.restore(self._start)
            self._at = 0
        tokens = mx.array(self._ids[self._at : self._at + width])
        start = self._clock()
        hidden, logits = verify(self._target, tokens, self._cache, self._mode)
        choices = mx.argmax(logits[0], axis=-1)
        mx.eval(hidden, choices, self._cache.arrays())
        seconds = self._clock() - start
        self._cache.commit(width, forward_width=width)
        mx.eval(self._cache.arrays())
        self._at += width
        return _Timed(seconds=seconds, hidden=hidden, choices=choices)


def _head_costs(session: Session, forced: _Forced, num_entries: int, clock: Clock) -> tuple[float, float]:
    """Median seconds of feeding the head so many entries with the first draft, and of one more draft."""
    head = session.head
    prefill_head(head, forced.request, forced.prompt_hidden)
    entries = forced.verify(num_entries)
    sync_s, draft_s = [], []
    for _ in range(HEAD_ROUNDS + 1):
        start = clock()
        state = head.extend(entries.hidden, entries.choices)[:, -1:]
        (token,) = draft(head, state, 1).made
        mx.eval(token, head.arrays())
        synced = clock()
        state = head.feed_back(state, token)
        mx.eval(draft(head, state, 1).made, head.arrays())
        sync_s.append(synced - start)
        draft_s.append(clock() - synced)
    head.reset()
    return median(sync_s[1:]), median(draft_s[1:])

"""Figures that set counts against counts, or one path against the other. Pure functions of repeats; null in, null out.

Formulas are written out in worker/METHODOLOGY.md; the names here are the names there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from fleet.compare.records import Counters, Repeat, Step
from fleet.compare.samples import PromptSamples
from fleet.compare.stats import Estimate, estimate_ratio

GENERATION = ("decode", "verify")
ALL_PHASES = ("prefill", "decode", "verify")
STAGES = ("draft_s", "snapshot_s", "verify_s", "commit_s", "replay_s", "head_sync_s", "finalize_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """How many drafts the target accepted. `conditional[i]`: position i given that all before it were accepted;
    `unconditional[i]`: position i out of every step that drafted it.
    """

    mean_length: float | None
    histogram: tuple[int, ...] | None
    conditional: tuple[float | None, ...] | None
    unconditional: tuple[float | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReplay:
    """The bound if bringing the recurrent state back to the accepted prefix cost nothing."""

    replay_share_ratio: float | None
    tok_s: float | None
    speedup: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds per verify step of the instrumented repeats; `other_s` is what no stage claims (signed)."""

    num_steps: int
    per_step: tuple[tuple[str, float | None], ...]
    other_s: float | None


def rates(prompts: Iterable[PromptSamples], path: str) -> list[list[float]]:
    """The decode rates of a path, one group per prompt."""
    return grouped(prompts, path, lambda repeat: repeat.decode_tok_s)


def grouped(prompts: Iterable[PromptSamples], path: str, value: Callable[[Repeat], float | None]) -> list[list[float]]:
    """One measured quantity of a path's repeats, one group per prompt; what was not measured is left out."""
    return [[x for r in prompt.select(path) if (x := value(r)) is not None] for prompt in prompts]


def speedup(prompts: Sequence[PromptSamples]) -> Estimate:
    """Set the speculative decode rate against the greedy one, prompt by prompt and repeat by repeat."""
    return estimate_ratio(rates(prompts, "speculative"), rates(prompts, "greedy"))


def total(repeats: Iterable[Repeat], counter: str, phases: Sequence[str] = GENERATION) -> int | float | None:
    """Sum a counter over phases and repeats; None when no phase measured it."""
    values = [value for r in repeats for phase in phases if (value := _counter(getattr(r, phase), counter)) is not None]
    return sum(values) if values else None


def hit_ratio(repeats: Sequence[Repeat], phases: Sequence[str] = GENERATION) -> float | None:
    """Routed pairs found in the pool, out of all routed pairs: what was read ahead and came in time is left out."""
    return ratio(_kept(repeats, phases), total(repeats, "num_routed", phases))


def _kept(repeats: Sequence[Repeat], phases: Sequence[str] = GENERATION) -> int | float | None:
    """Hits that the pool had: not those that prefetch brought."""
    hits = total(repeats, "num_hits", phases)
    return None if hits is None else hits - (total(repeats, "num_prefetch_hits", phases) or 0)


def optimal_hit_ratio(instrumented: Sequence[Repeat]) -> float | None:
    """What an optimal eviction would have found resident on the same routing, out of all routed pairs."""
    known = [r for r in instrumented if r.num_hits_optimal is not None]
    return ratio(total_of(r.num_hits_optimal for r in known), total(known, "num_routed"))


def hits_of_optimal_ratio(instrumented: Sequence[Repeat]) -> float | None:
    """Hits over the hits of an optimal eviction on the same routing."""
    known = [r for r in instrumented if r.num_hits_optimal is not None]
    return ratio(_kept(known), total_of(r.num_hits_optimal for r in known))


def per_token(repeats: Sequence[Repeat], counter: str) -> float | None:
    """A counter of the generation phases per token that those phases emitted: the first token is the prefill's."""
    return ratio(total(repeats, counter), sum((r.num_tokens or 1) - 1 for r in repeats))


def per_repeat(repeats: Sequence[Repeat], counter: str) -> float | None:
    """A counter over all phases, prefill included, per repeat."""
    return ratio(total(repeats, counter, ALL_PHASES), len(repeats))


def disk_load_ratio(speculative: Sequence[Repeat], greedy: Sequence[Repeat]) -> float | None:
    """Speculative over greedy disk loads per emitted token. None when greedy decoding read nothing."""
    return ratio(per_token(speculative, "num_disk_loads"), per_token(greedy, "num_disk_loads"))


def disk_load_ratio_total(speculative: Sequence[Repeat], greedy: Sequence[Repeat]) -> float | None:
    """Speculative over greedy disk loads of whole repeats, prefill included."""
    return ratio(per_repeat(speculative, "num_disk_loads"), per_repeat(greedy, "num_disk_loads"))


def acceptance(repeats: Sequence[Repeat], steps: Sequence[Step]) -> Acceptance:
    """Summarise the accepted drafts of measured speculative repeats.

    Conditional shares come from the steps themselves: near the end of a sequence fewer drafts are proposed, and
    only the steps know which of them reached a position.
    """
    stepped = [r for r in repeats if r.num_steps]
    return Acceptance(
        mean_length=ratio(
            sum((r.num_tokens or 1) - 1 for r in stepped) if stepped else None, sum(r.num_steps or 0 for r in stepped)
        ),
        histogram=_sum_lists(r.accept_histogram for r in repeats),
        conditional=_conditional(steps),
        unconditional=_shares(
            _sum_lists(r.num_accepted_by_position for r in repeats),
            _sum_lists(r.num_drafted_by_position for r in repeats),
        ),
    )


def no_replay(instrumented: Sequence[Repeat], rate: Estimate, speedup: Estimate) -> NoReplay:
    """Take the replays' share of the instrumented repeats out of the measured figures.

    Only the share is taken from the instrumented repeats: their barriers slow everything, and a bound made of their rates
    would lie below what was measured. Without a replay the bound is the measured figure itself.
    """
    known = [(r.replay_s, r.decode_s) for r in instrumented if r.replay_s is not None and r.decode_s is not None]
    share = ratio(sum(replay for replay, _ in known), sum(decode for _, decode in known)) if known else None
    if share is None or share >= 1:
        return NoReplay(replay_share_ratio=share, tok_s=None, speedup=None)
    return NoReplay(
        replay_share_ratio=share, tok_s=ratio(rate.median, 1 - share), speedup=ratio(speedup.median, 1 - share)
    )


def stage_times(repeats: Sequence[Repeat]) -> StageTimes | None:
    """Share the instrumented repeats' decode time among the stages; None when nothing was instrumented."""
    stepped = [r for r in repeats if r.num_steps and r.decode_s is not None]
    num_steps = sum(r.num_steps or 0 for r in stepped)
    if not num_steps:
        return None
    per_step: list[tuple[str, float | None]] = []
    for stage in STAGES:
        values = [value for r in stepped if (value := getattr(r, stage)) is not None]
        per_step.append((stage, sum(values) / num_steps if values else None))
    known = [seconds for _, seconds in per_step if seconds is not None]
    decode = sum(r.decode_s or 0.0 for r in stepped) / num_steps
    return StageTimes(num_steps=num_steps, per_step=tuple(per_step), other_s=decode - sum(known) if known else None)


def maximum(values: Iterable[int | None]) -> int | None:
    """The largest measured value, or None."""
    known = [value for value in values if value is not None]
    return max(known) if known else None


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of the measured values, or None when none was measured."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def total_of(values: Iterable[int | None]) -> int | None:
    """The sum of the measured values, or None when none was measured."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _counter(counters: Counters | None, name: str) -> int | float | None:
    return None if counters is None else getattr(counters, name)


def ratio(top: float | None, bottom: float | None) -> float | None:
    """Divide; None when a side was not measured or the divisor is zero."""
    return None if top is None or not bottom else top / bottom


def _sum_lists(lists: Iterable[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    known = [values for values in lists if values is not None]
    if not known:
        return None
    length = max(len(values) for values in known)
    return tuple(sum(values[i] for values in known if i < len(values)) for i in range(length))


def _shares(tops: tuple[int, ...] | None, bottoms: tuple[int, ...] | None) -> tuple[float | None, ...] | None:
    if tops is None or bottoms is None:
        return None
    return tuple(ratio(top, bottom) for top, bottom in zip(tops, bottoms, strict=False))


def _conditional(steps: Sequence[Step]) -> tuple[float | None, ...] | None:
    counts = [
        (s.num_drafted, s.num_accepted) for s in steps if s.num_drafted is not None and s.num_accepted is not None
    ]
    if not counts:
        return None
    shares: list[float | None] = []
    for position in range(max(drafted for drafted, _ in counts)):
        reached = [accepted for drafted, accepted in counts if drafted > position and accepted >= position]
        shares.append(ratio(sum(accepted > position for accepted in reached), len(reached)))
    return tuple(shares)

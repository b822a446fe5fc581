"""May these figures be trusted? Combine the prompts' exactness verdicts and say aloud everything that weakens a row.

Each flag names its cause and, where there is one, the setting that removes it. `error`: the figures may be false.
`warning`: the figures are true of a disturbed or thin measurement. `note`: worth knowing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.compare.prefetch import prefetch_trial
from fleet.compare.records import Check
from fleet.compare.relative import grouped, total_of
from fleet.compare.samples import PromptSamples, RowSamples
from fleet.compare.stats import Estimate

Exactness = Literal["identical", "tie", "drift", "wrong"]
Level = Literal["note", "warning", "error"]

SEVERITY: tuple[Exactness, ...] = ("identical", "tie", "drift", "wrong")
EXPECTED_CHECKS: tuple[str, ...] = (
    "byte_oracle",
    "greedy_repeatable",
    "speculative_repeatable",
    "width_logits",
    "write_visibility",
    "mtp_attachment",
    "record_digests",
    "counters_balance",
)
FEW_TOKENS = 16
"""Decoded tokens of a repeat below which a rate is mostly start-up."""
FEW_REPEATS = 6
"""Samples below which a percentile interval cannot reach 95 % coverage of the median."""
WIDE_INTERVAL_RATIO = 0.30
UNSTABLE_REPEATS_RATIO = 0.10
HIGH_LOAD_PER_CORE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One reason to read a row with care."""

    name: str
    level: Level
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One control over all prompts of a row."""

    name: str
    num_run: int | None
    num_failed: int | None
    details: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """A check that never ran has not passed."""
        return bool(self.num_run) and self.num_failed == 0


def combine(verdicts: Iterable[str | None]) -> Exactness | None:
    """The worst verdict of a row's prompts: identical < tie < drift < wrong.

    None when a prompt has no verdict (or one that this build does not know), unless another prompt is wrong.
    """
    seen = list(verdicts)
    if "wrong" in seen:
        return "wrong"
    ranks = [SEVERITY.index(verdict) for verdict in seen if verdict in SEVERITY]
    return SEVERITY[max(ranks)] if ranks and len(ranks) == len(seen) else None


def may_be_compared(exactness: Exactness | None) -> bool:
    """A wrong row, and one that was never checked, has speeds but takes part in no comparison."""
    return exactness is not None and exactness != "wrong"


def combine_checks(prompts: Iterable[PromptSamples]) -> tuple[CheckResult, ...]:
    """Add up each control over the prompts, in the order of EXPECTED_CHECKS, then by name."""
    named = [(check.name or "(unnamed)", check) for prompt in prompts for check in prompt.checks]
    names = {name for name, _ in named}
    ordered = [name for name in EXPECTED_CHECKS if name in names] + sorted(names - set(EXPECTED_CHECKS))
    return tuple(_combined(name, [check for other, check in named if other == name]) for name in ordered)


def _combined(name: str, checks: Sequence[Check]) -> CheckResult:
    return CheckResult(
        name=name,
        num_run=total_of(check.num_run for check in checks),
        num_failed=total_of(check.num_failed for check in checks),
        details=tuple(dict.fromkeys(check.detail for check in checks if check.detail)),
    )


def expected_checks(verify_width: int | None, draft_policy: str | int | None) -> tuple[str, ...]:
    """The controls that a row must show; where nothing is drafted, nothing is said about the head."""
    drafts = verify_width != 1 and draft_policy != "off"
    return tuple(name for name in EXPECTED_CHECKS if drafts or name != "mtp_attachment")


def flags(
    row: RowSamples,
    *,
    exactness: Exactness | None,
    checks: Sequence[CheckResult],
    estimates: Sequence[tuple[str, Estimate]],
) -> tuple[Flag, ...]:
    """List every reason for care, the gravest first. `estimates` are the row's named figures that have intervals."""
    found = [
        *_exactness_flags(exactness),
        *_check_flags(checks, expected_checks(row.key.verify_width, dict(row.key.shared)["draft_policy"])),
        *_state_flags(row),
        *_sample_flags(row, estimates),
        *_prefetch_flags(row),
    ]
    order: tuple[Level, ...] = ("error", "warning", "note")
    return tuple(sorted(found, key=lambda flag: order.index(flag.level)))


def _exactness_flags(exactness: Exactness | None) -> list[Flag]:
    if exactness == "wrong":
        text = "speculative tokens differ from greedy beyond rounding; this row enters no comparison"
        return [Flag(name="wrong", level="error", message=text)]
    if exactness is None:
        text = "a prompt has no exactness verdict; this row enters no comparison"
        return [Flag(name="not_verified", level="error", message=text)]
    return []


def _check_flags(checks: Sequence[CheckResult], expected: Sequence[str]) -> list[Flag]:
    found: list[Flag] = []
    for check in checks:
        detail = f": {check.details[0]}" if check.details else ""
        if not check.num_run:
            found.append(Flag(name="check_not_run", level="error", message=f"check {check.name} never ran{detail}"))
        elif check.num_failed is None:
            text = f"check {check.name} does not say how often it failed{detail}"
            found.append(Flag(name="check_failed", level="error", message=text))
        elif check.num_failed:
            text = f"check {check.name} failed {check.num_failed} of {check.num_run} times{detail}"
            found.append(Flag(name="check_failed", level="error", message=text))
    names = {check.name for check in checks}
    missing = [name for name in expected if name not in names]
    if missing:
        text = f"no result of the check{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        found.append(Flag(name="check_missing", level="warning", message=text))
    return found


def _state_flags(row: RowSamples) -> list[Flag]:
    found: list[Flag] = []
    runs = [prompt.run for prompt in row.prompts]
    if row.key.synthetic:
        text = "made by a synthetic engine or a simulated node, not by a machine"
        found.append(Flag(name="synthetic", level="warning", message=text))
    builds = sorted({run.build_hash for run in runs if run.build_hash})
    if len(builds) > 1:
        text = f"prompts were measured by {len(builds)} builds ({', '.join(builds)}); submit the study again"
        found.append(Flag(name="mixed_builds", level="warning", message=text))
    if nice := next((run.nice for run in runs if run.nice), None):
        text = f"ran at nice {nice}: the scheduler held it back; run it at nice 0"
        found.append(Flag(name="nice", level="warning", message=text))
    if any(run.power_mode == "low" for run in runs):
        text = "low power mode was on; switch it off to compare with other machines"
        found.append(Flag(name="low_power", level="warning", message=text))
    cores = next((run.cpu_cores for run in runs if run.cpu_cores), None)
    loads = [r.load_average_before for p in row.prompts for r in p.repeats if r.load_average_before is not None]
    if cores and loads and max(loads) > HIGH_LOAD_PER_CORE * cores:
        text = f"load average {max(loads):.1f} on {cores} cores before a repeat; stop other work on the machine"
        found.append(Flag(name="high_load", level="warning", message=text))
    return found


def _sample_flags(row: RowSamples, estimates: Sequence[tuple[str, Estimate]]) -> list[Flag]:
    found: list[Flag] = []
    tokens = [
        r.decode_tokens for p in row.prompts for r in p.repeats if not r.instrumented and r.decode_tokens is not None
    ]
    if tokens and min(tokens) < FEW_TOKENS:
        text = f"a repeat decoded only {min(tokens)} tokens; raise max_tokens or choose a prompt with a longer answer"
        found.append(Flag(name="few_tokens", level="warning", message=text))
    single = [name for name, value in estimates if value.n == 1]
    if single:
        text = f"one sample and no interval: {', '.join(single)}; raise repeats"
        found.append(Flag(name="one_repeat", level="warning", message=text))
    wide = {name: width for name, value in estimates if (width := _relative_width(value)) > WIDE_INTERVAL_RATIO}
    if wide:
        text = (
            f"wide interval, up to {max(wide.values()):.0%} of the median: {', '.join(wide)}; "
            "the prompts table tells prompts from repeats"
        )
        found.append(Flag(name="wide_interval", level="note", message=text))
    for path in ("greedy", "speculative"):
        spread = max((_spread(group) for group in grouped(row.prompts, path, lambda r: r.decode_tok_s)), default=0.0)
        if spread > UNSTABLE_REPEATS_RATIO:
            text = f"{path} repeats of one prompt differ by {spread:.0%}; the machine was not quiet, or it throttled"
            found.append(Flag(name="unstable_repeats", level="warning", message=text))
    few = [value.n for _, value in estimates if 1 < value.n < FEW_REPEATS]
    if few:
        text = f"intervals of {min(few)} samples cover less than 95 %; {FEW_REPEATS} or more do"
        found.append(Flag(name="few_repeats", level="note", message=text))
    return found


def _prefetch_flags(row: RowSamples) -> list[Flag]:
    trial = prefetch_trial(prompt.run for prompt in row.prompts)
    if trial is None or trial.kept:
        return []
    text = (
        f"a trial left prefetch off: {trial.on_s * 1e3:.3g} ms per token with it, {trial.off_s * 1e3:.3g} ms without; "
        "set prefetch to on to measure with it"
    )
    return [Flag(name="prefetch_lost", level="note", message=text)]


def _relative_width(value: Estimate) -> float:
    if value.low is None or value.high is None or not value.median:
        return 0.0
    return (value.high - value.low) / value.median


def _spread(group: Sequence[float]) -> float:
    if len(group) < 2:
        return 0.0
    return (max(group) - min(group)) / sorted(group)[len(group) // 2]

"""One row of the comparison: every figure of one machine, checkpoint, verify width and pool size, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.compare import relative, verdict
from fleet.compare.prefetch import PrefetchFigures, PrefetchTrial, prefetch_figures, prefetch_trial, read_bytes_s
from fleet.compare.records import Repeat, Run
from fleet.compare.relative import Acceptance, NoReplay, StageTimes
from fleet.compare.samples import PromptSamples, RowKey, RowSamples
from fleet.compare.stats import NOT_MEASURED, Estimate, estimate
from fleet.compare.verdict import CheckResult, Exactness, Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFigures:
    """What one path (greedy or speculative) did in its measured repeats. `prefetch` is None where it was off."""

    decode_tok_s: Estimate
    e2e_tok_s: Estimate
    prefill_s: Estimate
    ttft_s: Estimate
    num_tokens: int | None
    hit_ratio: float | None
    hit_ratio_by_phase: tuple[tuple[str, float | None], ...]
    optimal_hit_ratio: float | None
    hits_of_optimal_ratio: float | None
    disk_loads_per_token: float | None
    disk_bytes_per_token: float | None
    disk_loads_per_repeat: float | None
    num_layers_fast: int | None
    num_layers_fallback: int | None
    route_wait_s_per_token: float | None
    read_wait_s_per_token: float | None
    read_bytes_s: float | None
    prefetch: PrefetchFigures | None
    peak_bytes: int | None
    rss_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """How the recurrent state was brought to the accepted prefix, over the measured speculative repeats."""

    num_steps: int | None
    num_direct_commits: int | None
    num_replays: int | None
    num_replayed_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What speculation costs in the row's first run, what it was expected to bring, and what it brought.

    The speedups are medians over prompts, of one prediction and one measurement each.
    """

    verify_cost_s: tuple[float, ...] | None
    draft_cost_s: float | None
    head_sync_cost_s: float | None
    predicted_speedup: float | None
    measured_speedup: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory split of one process after clearing reclaimable buffers.

    Weights, pool, head and the signed rest add up to `active_bytes`; staging is host memory beside them.
    """

    active_bytes: int | None
    weights_bytes: int | None
    expert_pool_bytes: int | None
    staging_bytes: int | None
    mtp_head_bytes: int | None
    unattributed_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFigures:
    """One prompt's share of a row, with the evidence of its exactness verdict."""

    prompt_id: str | None
    category: str | None
    num_prompt_tokens: int | None
    num_tokens: int | None
    stop_reason: str | None
    greedy_decode_tok_s: Estimate
    speculative_decode_tok_s: Estimate
    speedup: Estimate
    predicted_speedup: float | None
    mean_accept_length: float | None
    exactness: str | None
    num_mismatches: int | None
    first_mismatch_index: int | None
    mismatch_gap: float | None
    logit_quantum: float | None
    width_logit_diff_max: float | None
    width_logit_diff_p99: float | None
    width_logit_gap_shift_max: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the comparison. `first_run` carries the machine and the configuration that all its samples share."""

    key: RowKey
    first_run: Run
    build_hashes: tuple[str, ...]
    exactness: Exactness | None
    num_mismatches: int | None
    greedy: PathFigures
    speculative: PathFigures
    speedup: Estimate
    acceptance: Acceptance
    commits: Commits
    speculation: Speculation
    disk_load_ratio: float | None
    disk_load_ratio_total: float | None
    no_replay: NoReplay
    prefetch_trial: PrefetchTrial | None
    stages: StageTimes | None
    peak_bytes: int | None
    memory: Memory
    checks: tuple[CheckResult, ...]
    prompts: tuple[PromptFigures, ...]
    flags: tuple[Flag, ...]

    @property
    def comparable(self) -> bool:
        return verdict.may_be_compared(self.exactness)

    @property
    def worst_level(self) -> verdict.Level | None:
        return self.flags[0].level if self.flags else None


def compare(row: RowSamples) -> Row:
    """Turn the samples of a row into its figures. A row that may not be compared has no figure that sets its paths
    against each other.
    """
    greedy, speculative = row.select("greedy"), row.select("speculative")
    exactness = verdict.combine(prompt.run.exactness for prompt in row.prompts)
    comparable = verdict.may_be_compared(exactness)
    checks = verdict.combine_checks(row.prompts)
    figures = {path: _path(row.prompts, path) for path in ("greedy", "speculative")}
    speedup = relative.speedup(row.prompts) if comparable else NOT_MEASURED
    instrumented = row.select("speculative", instrumented=True)
    rate = figures["speculative"].decode_tok_s if comparable else NOT_MEASURED
    return Row(
        key=row.key,
        first_run=row.prompts[0].run,
        build_hashes=tuple(sorted({p.run.build_hash for p in row.prompts if p.run.build_hash})),
        exactness=exactness,
        num_mismatches=_all_or_none([prompt.run.num_mismatches for prompt in row.prompts]),
        greedy=figures["greedy"],
        speculative=figures["speculative"],
        speedup=speedup,
        acceptance=relative.acceptance(speculative, [step for prompt in row.prompts for step in prompt.steps]),
        commits=_commits(speculative),
        speculation=_speculation([prompt.run for prompt in row.prompts], comparable=comparable),
        disk_load_ratio=relative.disk_load_ratio(speculative, greedy) if comparable else None,
        disk_load_ratio_total=relative.disk_load_ratio_total(speculative, greedy) if comparable else None,
        no_replay=relative.no_replay(instrumented, rate, speedup),
        prefetch_trial=prefetch_trial(prompt.run for prompt in row.prompts),
        stages=relative.stage_times(instrumented),
        peak_bytes=relative.maximum([figures["greedy"].peak_bytes, figures["speculative"].peak_bytes]),
        memory=_memory([prompt.run for prompt in row.prompts]),
        checks=checks,
        prompts=tuple(_prompt(prompt) for prompt in row.prompts),
        flags=verdict.flags(
            row,
            exactness=exactness,
            checks=checks,
            estimates=[
                ("greedy tok/s", figures["greedy"].decode_tok_s),
                ("speculative tok/s", figures["speculative"].decode_tok_s),
                ("speedup", speedup),
            ],
        ),
    )


def _path(prompts: tuple[PromptSamples, ...], path: str) -> PathFigures:
    repeats = [r for prompt in prompts for r in prompt.select(path)]
    instrumented = [r for prompt in prompts for r in prompt.select(path, instrumented=True)]
    return PathFigures(
        decode_tok_s=estimate(relative.rates(prompts, path)),
        e2e_tok_s=estimate(relative.grouped(prompts, path, lambda r: r.e2e_tok_s)),
        prefill_s=estimate(relative.grouped(prompts, path, lambda r: r.prefill_s)),
        ttft_s=estimate(relative.grouped(prompts, path, lambda r: r.ttft_s)),
        num_tokens=relative.total_of(r.num_tokens for r in repeats),
        hit_ratio=relative.hit_ratio(repeats),
        hit_ratio_by_phase=tuple((phase, relative.hit_ratio(repeats, (phase,))) for phase in relative.ALL_PHASES),
        optimal_hit_ratio=relative.optimal_hit_ratio(instrumented),
        hits_of_optimal_ratio=relative.hits_of_optimal_ratio(instrumented),
        disk_loads_per_token=relative.per_token(repeats, "num_disk_loads"),
        disk_bytes_per_token=relative.per_token(repeats, "disk_bytes"),
        disk_loads_per_repeat=relative.per_repeat(repeats, "num_disk_loads"),
        num_layers_fast=_whole(relative.total(repeats, "num_layers_fast")),
        num_layers_fallback=_whole(relative.total(repeats, "num_layers_fallback")),
        route_wait_s_per_token=relative.per_token(repeats, "route_wait_s"),
        read_wait_s_per_token=relative.per_token(repeats, "read_wait_s"),
        read_bytes_s=read_bytes_s(repeats),
        prefetch=prefetch_figures(repeats) if prompts[0].run.prefetch == "on" else None,
        peak_bytes=relative.maximum(r.peak_bytes for r in repeats),
        rss_bytes=relative.maximum(r.rss_bytes for r in repeats),
    )


def _prompt(prompt: PromptSamples) -> PromptFigures:
    run, speculative = prompt.run, prompt.select("speculative")
    measured = speculative or prompt.select("greedy")
    comparable = verdict.may_be_compared(verdict.combine([run.exactness]))
    return PromptFigures(
        prompt_id=run.prompt_id,
        category=run.prompt_category,
        num_prompt_tokens=run.num_prompt_tokens,
        num_tokens=relative.maximum(r.num_tokens for r in measured),
        stop_reason=measured[-1].stop_reason if measured else None,
        greedy_decode_tok_s=estimate(relative.rates([prompt], "greedy")),
        speculative_decode_tok_s=estimate(relative.rates([prompt], "speculative")),
        speedup=relative.speedup([prompt]) if comparable else NOT_MEASURED,
        predicted_speedup=run.predicted_speedup if comparable else None,
        mean_accept_length=relative.acceptance(speculative, prompt.steps).mean_length,
        exactness=run.exactness,
        num_mismatches=run.num_mismatches,
        first_mismatch_index=run.first_mismatch_index,
        mismatch_gap=run.mismatch_gap,
        logit_quantum=run.logit_quantum,
        width_logit_diff_max=run.width_logit_diff_max,
        width_logit_diff_p99=run.width_logit_diff_p99,
        width_logit_gap_shift_max=run.width_logit_gap_shift_max,
    )


def _commits(repeats: tuple[Repeat, ...]) -> Commits:
    return Commits(
        num_steps=relative.total_of(r.num_steps for r in repeats),
        num_direct_commits=relative.total_of(r.num_direct_commits for r in repeats),
        num_replays=relative.total_of(r.num_replays for r in repeats),
        num_replayed_tokens=relative.total_of(r.num_replayed_tokens for r in repeats),
    )


def _speculation(runs: list[Run], *, comparable: bool) -> Speculation:
    return Speculation(
        verify_cost_s=runs[0].verify_cost_s,
        draft_cost_s=runs[0].draft_cost_s,
        head_sync_cost_s=runs[0].head_sync_cost_s,
        predicted_speedup=relative.median_of(run.predicted_speedup for run in runs) if comparable else None,
        measured_speedup=relative.median_of(run.measured_speedup for run in runs) if comparable else None,
    )


def _memory(runs: list[Run]) -> Memory:
    """The split of the run that held most: taking each part's maximum would make a sum that no process ever had."""
    run = max(runs, key=lambda run: run.active_bytes or 0)
    return Memory(
        active_bytes=run.active_bytes,
        weights_bytes=run.weights_bytes,
        expert_pool_bytes=run.expert_pool_bytes,
        staging_bytes=run.staging_bytes,
        mtp_head_bytes=run.mtp_head_bytes,
        unattributed_bytes=run.unattributed_bytes,
    )


def _all_or_none(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)

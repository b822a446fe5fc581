"""The report as JSON: stable keys in a stable order, units in the names, nothing rounded, null for not measured."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from fleet.compare.relative import StageTimes
from fleet.compare.row import PathFigures, PromptFigures, Row
from fleet.compare.stats import Estimate
from fleet.compare.verdict import CheckResult
from fleet.report.hardware import HardwareReport, Machine, ReportRow

_TIMES = (
    "process_start_s",
    "prepare_s",
    "verify_records_s",
    "allocate_s",
    "load_s",
    "start_to_first_token_s",
    "measure_s",
)


def render(report: HardwareReport) -> str:
    """Raises: nothing; a number that JSON cannot write (infinite, not a number) becomes null."""
    return json.dumps(_finite(report_dict(report)), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def report_dict(report: HardwareReport) -> dict[str, Any]:
    """The whole report as plain values."""
    return {
        "schema_version": report.schema_version,
        "study": report.study,
        "synthetic": report.synthetic,
        "machines": [_machine(machine) for machine in report.machines],
        "rows": [row_dict(row) for row in report.rows],
        "warnings": list(report.warnings),
    }


def row_dict(row: ReportRow) -> dict[str, Any]:
    """One row as plain values."""
    return {**_headline(row), **_details(row)}


def _headline(row: ReportRow) -> dict[str, Any]:
    """The figures that most readers want, first."""
    figures = row.figures
    key = figures.key
    return {
        "machine": row.machine,
        "checkpoint": key.checkpoint,
        "verify_width": key.verify_width,
        "slots_per_layer": key.slots_per_layer,
        "greedy_decode_tok_s": _estimate(figures.greedy.decode_tok_s),
        "speculative_decode_tok_s": _estimate(figures.speculative.decode_tok_s),
        "speedup": _estimate(figures.speedup),
        "mean_accept_length": figures.acceptance.mean_length,
        "accept_histogram": _list(figures.acceptance.histogram),
        "greedy_hit_ratio": figures.greedy.hit_ratio,
        "speculative_hit_ratio": figures.speculative.hit_ratio,
        "disk_load_ratio": figures.disk_load_ratio,
        "peak_bytes": figures.peak_bytes,
        "exactness": figures.exactness,
        "num_mismatches": figures.num_mismatches,
    }


def _details(row: ReportRow) -> dict[str, Any]:
    """Everything else."""
    figures = row.figures
    key, run = figures.key, figures.first_run
    return {
        "comparable": figures.comparable,
        "synthetic": key.synthetic,
        "flags": [dataclasses.asdict(flag) for flag in figures.flags],
        "variant": dict(row.variant),
        "checkpoint_digest": key.checkpoint_digest,
        "num_draft_tokens": None if key.verify_width is None else key.verify_width - 1,
        **_path(figures.greedy, "greedy"),
        **_path(figures.speculative, "speculative"),
        "accept_conditional_ratio": _list(figures.acceptance.conditional),
        "accept_unconditional_ratio": _list(figures.acceptance.unconditional),
        **dataclasses.asdict(figures.commits),
        **dataclasses.asdict(figures.speculation),
        "disk_load_ratio_total": figures.disk_load_ratio_total,
        "replay_share_ratio": figures.no_replay.replay_share_ratio,
        "no_replay_tok_s": figures.no_replay.tok_s,
        "no_replay_speedup": figures.no_replay.speedup,
        "prefetch_trial_off_s": figures.prefetch_trial and figures.prefetch_trial.off_s,
        "prefetch_trial_on_s": figures.prefetch_trial and figures.prefetch_trial.on_s,
        "stages_s_per_step": _stages(figures.stages),
        "memory": dataclasses.asdict(figures.memory),
        "times": {name: getattr(run, name) for name in _TIMES},
        "settings": dict(key.shared),
        "num_moe_layers": run.num_moe_layers,
        "num_experts": run.num_experts,
        "experts_per_token": run.experts_per_token,
        "memory_budget_bytes": run.memory_budget_bytes,
        "slots_by_layer": _list(run.slots_by_layer),
        "num_pool_slots": run.num_pool_slots,
        "num_pinned_experts": run.num_pinned_experts,
        "checks": [_check(check) for check in figures.checks],
        "prompts": [_prompt(prompt) for prompt in figures.prompts],
        "provenance": _provenance(figures),
    }


def _check(check: CheckResult) -> dict[str, Any]:
    return {
        "name": check.name,
        "num_run": check.num_run,
        "num_failed": check.num_failed,
        "passed": check.passed,
        "details": list(check.details),
    }


def _machine(machine: Machine) -> dict[str, Any]:
    facts = dataclasses.asdict(machine)
    return {"machine": facts.pop("name"), **facts}


def _path(figures: PathFigures, path: str) -> dict[str, Any]:
    return {
        f"{path}_e2e_tok_s": _estimate(figures.e2e_tok_s),
        f"{path}_prefill_s": _estimate(figures.prefill_s),
        f"{path}_ttft_s": _estimate(figures.ttft_s),
        f"{path}_num_tokens": figures.num_tokens,
        f"{path}_hit_ratio_by_phase": dict(figures.hit_ratio_by_phase),
        f"{path}_optimal_hit_ratio": figures.optimal_hit_ratio,
        f"{path}_hits_of_optimal_ratio": figures.hits_of_optimal_ratio,
        f"{path}_disk_loads_per_token": figures.disk_loads_per_token,
        f"{path}_disk_bytes_per_token": figures.disk_bytes_per_token,
        f"{path}_disk_loads_per_repeat": figures.disk_loads_per_repeat,
        f"{path}_num_layers_fast": figures.num_layers_fast,
        f"{path}_num_layers_fallback": figures.num_layers_fallback,
        f"{path}_route_wait_s_per_token": figures.route_wait_s_per_token,
        f"{path}_read_wait_s_per_token": figures.read_wait_s_per_token,
        f"{path}_read_bytes_s": figures.read_bytes_s,
        f"{path}_prefetch": None if figures.prefetch is None else dataclasses.asdict(figures.prefetch),
        f"{path}_peak_bytes": figures.peak_bytes,
        f"{path}_rss_bytes": figures.rss_bytes,
    }


def _prompt(prompt: PromptFigures) -> dict[str, Any]:
    return dataclasses.asdict(prompt)


def _stages(stages: StageTimes | None) -> dict[str, float | int | None] | None:
    if stages is None:
        return None
    return {"num_steps": stages.num_steps, **dict(stages.per_step), "other_s": stages.other_s}


def _provenance(figures: Row) -> dict[str, Any]:
    run = figures.first_run
    return {
        "study_id": run.study_id,
        "task_id": run.task_id,
        "attempt_id": run.attempt_id,
        "build_hashes": list(figures.build_hashes),
    }


def _estimate(value: Estimate) -> dict[str, Any]:
    return dataclasses.asdict(value)


def _list(values: tuple[Any, ...] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""A small typed builder of result tables: what a study looks like in the store, without running one.

The numbers are made up, plausible, and simple enough to check by hand. Every column that a spec doesn't set is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, Literal

import pyarrow as pa

from worker.contract.schema import SCHEMA_VERSION, SCHEMAS

START = datetime(2026, 3, 1, 22, 0, tzinfo=UTC)
CHECKS = (
    "byte_oracle",
    "greedy_repeatable",
    "speculative_repeatable",
    "width_logits",
    "write_visibility",
    "mtp_attachment",
    "record_digests",
    "counters_balance",
)
M4_MAX: Mapping[str, Any] = {
    "hardware_model": "Mac16,5",
    "chip": "Apple M4 Max",
    "cpu_cores": 16,
    "cpu_tiers": "12 Performance + 4 Efficiency",
    "gpu_cores": 40,
    "memory_bytes": 128 * 2**30,
    "os_name": "macOS",
    "os_version": "26.3",
    "os_build": "25D125",
    "mlx_device": "gpu",
    "mlx_version": "0.32.4",
    "mlx_lm_version": "0.32.2",
    "mlx_wheel_tag": "cp312-cp312-macosx_26_0_arm64",
    "python_version": "3.12.11",
    "power_mode": "normal",
    "nice": 0,
}
M2: Mapping[str, Any] = {
    **M4_MAX,
    "hardware_model": "Mac14,3",
    "chip": "Apple M2",
    "cpu_cores": 8,
    "cpu_tiers": "4 Performance + 4 Efficiency",
    "gpu_cores": 10,
    "memory_bytes": 16 * 2**30,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpec:
    """One prompt of a run. Each tuple of seconds has one entry per measured repeat."""

    id: str = "prose-en"
    category: str = "prose"
    num_tokens: int = 97
    greedy_s: tuple[float | None, ...] = (4.8, 4.9, 4.7)
    speculative_s: tuple[float | None, ...] = (3.2, 3.3, 3.1)
    exactness: str | None = "identical"
    num_mismatches: int | None = 0
    first_mismatch_index: int | None = None
    mismatch_gap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One attempt of one task. `columns` overrides any column of `runs`, `repeat_columns` any of `repeats`.

    `prefetch` on takes the loads per token for what they were without: 20 greedy and 24 speculative.
    """

    node: str = "studio-1"
    verify_width: int = 3
    slots_per_layer: int = 32
    prompts: tuple[PromptSpec, ...] = (PromptSpec(),)
    machine: Mapping[str, Any] = field(default_factory=lambda: M4_MAX)
    task_id: str | None = None
    attempt: int = 1
    synthetic: bool = False
    build_hash: str = "b" * 16
    greedy_loads_per_token: int = 20
    speculative_loads_per_token: int = 24
    instrumented: bool = True
    prefetch: Literal["on", "off"] | None = None
    checks: Mapping[str, tuple[int, int]] = field(default_factory=lambda: dict.fromkeys(CHECKS, (3, 0)))
    columns: Mapping[str, Any] = field(default_factory=dict)
    repeat_columns: Mapping[str, Any] = field(default_factory=dict)


Rows = dict[str, list[dict[str, Any]]]


def study_tables(*specs: RunSpec) -> dict[str, pa.Table]:
    """Build every table of the contract from `specs`, typed by its schema."""
    rows: Rows = {name: [] for name in SCHEMAS}
    for spec in specs:
        for prompt in spec.prompts:
            _add_prompt(rows, spec, prompt)
    return {name: _table(name, rows[name]) for name in SCHEMAS}


def _table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    schema = SCHEMAS[name]
    complete = []
    for row in rows:
        assert set(row) <= set(schema.names), set(row) - set(schema.names)
        complete.append(dict.fromkeys(schema.names) | dict(row))
    return pa.Table.from_pylist(complete, schema=schema)


def _add_prompt(rows: Rows, spec: RunSpec, prompt: PromptSpec) -> None:
    task = spec.task_id or f"{spec.node}-w{spec.verify_width}-s{spec.slots_per_layer}"
    keys = {
        "study_id": "5" * 16,
        "task_id": task,
        "attempt_id": f"{task}-{spec.attempt}",
        "prompt_id": prompt.id,
    }
    rows["runs"].append(_run(keys, spec, prompt))
    sequence = 0
    for path, seconds in (("greedy", prompt.greedy_s), ("speculative", prompt.speculative_s)):
        for index, decode_s in enumerate(seconds):
            rows["repeats"].append(_repeat(keys, spec, prompt, path, index, sequence, decode_s, instrumented=False))
            sequence += 1
    if spec.instrumented:
        for path, decode_s in (("greedy", 6.0), ("speculative", 4.8)):
            rows["repeats"].append(_repeat(keys, spec, prompt, path, 0, sequence, decode_s, instrumented=True))
            sequence += 1
    rows["steps"] += _steps(keys, spec, prompt)
    rows["checks"] += [
        {**keys, "name": name, "num_run": run, "num_failed": failed} for name, (run, failed) in spec.checks.items()
    ]


def _run(keys: dict[str, str], spec: RunSpec, prompt: PromptSpec) -> dict[str, Any]:
    return {
        **keys,
        "schema_version": SCHEMA_VERSION,
        "build_hash": spec.build_hash,
        "synthetic": spec.synthetic,
        "node": spec.node,
        "started_at": START + timedelta(hours=spec.attempt),
        "finished_at": START + timedelta(hours=spec.attempt, minutes=2),
        **spec.machine,
        "checkpoint": "demo",
        "checkpoint_digest": "c" * 16,
        "num_moe_layers": 8,
        "num_experts": 64,
        "experts_per_token": 4,
        "prompt_category": prompt.category,
        "num_prompt_tokens": 21,
        "max_tokens": prompt.num_tokens,
        "order": "abba",
        "verify_width": spec.verify_width,
        "num_draft_tokens": spec.verify_width - 1,
        "verify_mode": "batched",
        "rollback": "capture",
        "slots_per_layer": spec.slots_per_layer,
        "num_pool_slots": 8 * spec.slots_per_layer,
        "draft_policy": "fixed",
        "draft_confidence": 0.3,
        "eviction": "lru",
        "prefetch": spec.prefetch,
        "prefetch_ranks": spec.prefetch and 4,
        "compute_dtype": "bfloat16",
        "load_s": 1.5,
        "start_to_first_token_s": 2.25,
        "active_bytes": 200 * 2**20,
        "weights_bytes": 120 * 2**20,
        "expert_pool_bytes": 60 * 2**20,
        "mtp_head_bytes": 19 * 2**20,
        "unattributed_bytes": 2**20,
        **_speculation(spec.verify_width, prompt),
        "exact": prompt.exactness == "identical" if prompt.exactness else None,
        "exactness": prompt.exactness,
        "num_mismatches": prompt.num_mismatches,
        "first_mismatch_index": prompt.first_mismatch_index,
        "mismatch_gap": prompt.mismatch_gap,
        "logit_quantum": 0.125,
        **spec.columns,
    }


def _speculation(verify_width: int, prompt: PromptSpec) -> dict[str, Any]:
    """Costs, and two tokens per step at these costs: 1.82 times as fast at width 2, 1.67 times at width 3."""
    verify_s, draft_s, sync_s = [0.05, 0.052, 0.055, 0.06, 0.07], 0.002, 0.003
    step_s = verify_s[verify_width - 1] + (sync_s + (verify_width - 2) * draft_s if verify_width > 1 else 0.0)
    seconds = [[s for s in times if s] for times in (prompt.greedy_s, prompt.speculative_s)]
    return {
        "verify_cost_s": verify_s,
        "draft_cost_s": draft_s,
        "head_sync_cost_s": sync_s,
        "predicted_speedup": (2.0 if verify_width > 1 else 1.0) * verify_s[0] / step_s,
        "measured_speedup": median(seconds[0]) / median(seconds[1]) if all(seconds) else None,
    }


def _repeat(
    keys: dict[str, str],
    spec: RunSpec,
    prompt: PromptSpec,
    path: str,
    index: int,
    sequence: int,
    decode_s: float | None,
    *,
    instrumented: bool,
) -> dict[str, Any]:
    speculative = path == "speculative"
    loads = spec.speculative_loads_per_token if speculative else spec.greedy_loads_per_token
    generated = prompt.num_tokens - 1
    row: dict[str, Any] = {
        **keys,
        "path": path,
        "instrumented": instrumented,
        "repeat_index": index,
        "sequence_index": sequence,
        "num_tokens": prompt.num_tokens,
        "decode_tokens": prompt.num_tokens,
        "stop_reason": "length",
        "prefill_s": 0.5,
        "ttft_s": 0.55,
        "decode_s": decode_s,
        "prefill": counters(forwards=1, routed=160, loads=100),
        "decode": None if speculative else counters(forwards=generated, routed=32 * generated, loads=loads * generated),
        "verify": counters(forwards=48, routed=60 * 48, loads=loads * generated) if speculative else None,
        "peak_bytes": (230 if speculative else 210) * 2**20,
        "rss_bytes": 400 * 2**20,
        "load_average_before": 1.0,
    }
    if speculative:
        row |= {
            "num_steps": generated // 2,
            "num_direct_commits": generated // 2,
            "num_replays": 0,
            "num_replayed_tokens": 0,
            "accept_histogram": [12, 24, 12],
            "num_drafted_by_position": [48, 48],
            "num_accepted_by_position": [36, 12],
        }
        if instrumented:
            row |= {
                "draft_s": 0.48,
                "snapshot_s": 0.048,
                "verify_s": 3.84,
                "commit_s": 0.048,
                "replay_s": 0.0,
                "head_sync_s": 0.096,
            }
    if spec.prefetch == "on":
        row |= _read_ahead(row, path, generated)
    return row | _reader(row) | dict(spec.repeat_columns)


READ_AHEAD: Mapping[str, Mapping[str, int]] = {
    "greedy": {
        "num_predicted": 18,
        "num_prefetch_submitted": 16,
        "num_prefetch_loads": 13,
        "num_prefetch_hits": 10,
        "num_prefetch_evicted": 1,
        "num_prefetch_cancelled": 3,
        "num_prefetch_dropped": 2,
        "num_misses_predicted_late": 2,
        "num_misses_predicted_evicted": 1,
        "num_misses_predicted_dropped": 1,
        "num_misses_unpredicted": 6,
    },
    "speculative": {
        "num_predicted": 24,
        "num_prefetch_submitted": 20,
        "num_prefetch_loads": 16,
        "num_prefetch_hits": 12,
        "num_prefetch_evicted": 2,
        "num_prefetch_cancelled": 4,
        "num_prefetch_dropped": 4,
        "num_misses_predicted_late": 2,
        "num_misses_predicted_evicted": 1,
        "num_misses_predicted_dropped": 2,
        "num_misses_unpredicted": 7,
    },
}
"""Per generated token. What was missed without prefetch now is a hit, late, or one of the three other causes."""


def _read_ahead(row: Mapping[str, Any], path: str, generated: int) -> dict[str, Any]:
    """The columns that prefetch adds or changes: half of the experts that were missed are there in time."""
    phase = "verify" if path == "speculative" else "decode"
    ahead = {name: count * generated for name, count in READ_AHEAD[path].items()}
    loads = row[phase]["num_disk_loads"] - ahead["num_prefetch_hits"] - ahead["num_misses_predicted_late"]
    hits = row[phase]["num_hits"] + ahead["num_prefetch_hits"]
    return {
        phase: {**row[phase], **ahead, "num_hits": hits, "num_disk_loads": loads, "disk_bytes": loads * 2**20},
        "reader_cancelled": ahead["num_prefetch_cancelled"],
        "prefetch_window_mean_s": 0.004,
        "prefetch_window_n": ahead["num_prefetch_hits"] + ahead["num_misses_predicted_late"],
        "predict_recall_ratio": 0.75 if path == "greedy" else 0.625,
        "num_predictions": 7 * row[phase]["num_forwards"],
        "predict_host_s": 0.072,
        "submit_host_s": 0.048,
        "promote_host_s": 0.024,
    }


def _reader(row: Mapping[str, Any]) -> dict[str, Any]:
    """Every record is a MiB, and four of 10^9 bytes come per second."""
    phases = [row[phase] for phase in ("prefill", "decode", "verify") if row[phase]]
    records = sum(phase["num_disk_loads"] + (phase.get("num_prefetch_loads") or 0) for phase in phases)
    return {"reader_bytes": records * 2**20, "reader_active_s": records * 2**20 / 4e9}


def counters(*, forwards: int, routed: int, loads: int) -> dict[str, Any]:
    """Counters of one phase in an engine that neither prefetches nor has a fast path."""
    return {
        "num_forwards": forwards,
        "num_routed": routed,
        "num_hits": routed - loads,
        "num_disk_loads": loads,
        "disk_bytes": loads * 2**20,
        "num_layers_fallback": forwards * 8,
        "route_wait_s": 0.1,
        "read_wait_s": 0.2,
    }


def _steps(keys: dict[str, str], spec: RunSpec, prompt: PromptSpec) -> list[dict[str, Any]]:
    accepted = [0] * 12 + [1] * 24 + [2] * 12
    return [
        {
            **keys,
            "instrumented": False,
            "repeat_index": repeat,
            "step_index": index,
            "num_drafted": spec.verify_width - 1,
            "num_accepted": min(count, spec.verify_width - 1),
            "num_emitted": min(count, spec.verify_width - 1) + 1,
        }
        for repeat in range(len(prompt.speculative_s))
        for index, count in enumerate(accepted)
    ]

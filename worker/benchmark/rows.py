"""From records to rows of the contract's tables: names are matched to columns, nothing is rounded or averaged away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from worker.benchmark.checks import Check
from worker.benchmark.exactness import Exactness, WidthControl
from worker.benchmark.measure import Record
from worker.benchmark.protocol import PATHS
from worker.contract.schema import SCHEMAS
from worker.experts.counters import PHASES
from worker.experts.prefetch import LayerForesight, PrefetchCounters
from worker.mtp.predict import Costs, predicted_speedup

Row = dict[str, Any]


def to_tables(rows: dict[str, list[Row]]) -> dict[str, pa.Table]:
    """Every table of the contract; columns that a row lacks are null. Raises: KeyError for a column nobody declared."""
    tables = {}
    for name, schema in SCHEMAS.items():
        for row in rows.get(name, []):
            if unknown := set(row) - set(schema.names):
                raise KeyError(f"{name} has no column {sorted(unknown)}")
        tables[name] = pa.Table.from_pylist(rows.get(name, []), schema=schema)
    return tables


def repeat_row(record: Record, verify_width: int) -> Row:
    measurement, generation, reader = record.measurement, record.generation, record.reader
    row: Row = {
        "path": measurement.path,
        "instrumented": measurement.kind == "instrumented",
        "repeat_index": measurement.repeat_index,
        "sequence_index": measurement.sequence_index,
        "started_at": record.started_at,
        "num_tokens": len(generation.token_ids),
        "decode_tokens": len(generation.token_ids),
        "stop_reason": generation.stop_reason,
        "prefill_s": generation.prefill_s,
        "ttft_s": generation.ttft_s,
        "decode_s": generation.decode_s,
        "active_bytes": record.memory.active_bytes,
        "peak_bytes": record.memory.peak_bytes,
        "prefill_peak_bytes": record.memory.prefill_peak_bytes,
        "generation_peak_bytes": record.memory.generation_peak_bytes,
        "cache_bytes": record.memory.cache_bytes,
        "rss_bytes": record.memory.rss_bytes,
        "reader_submitted": reader.submitted,
        "reader_completed": reader.completed,
        "reader_cancelled": reader.cancelled,
        "reader_bytes": reader.bytes,
        "reader_num_reads": reader.num_reads,
        "reader_busy_s": reader.busy_s,
        "reader_active_s": reader.active_s,
        "reader_queue_depth_mean": reader.depth_mean,
        "reader_queue_depth_max": reader.depth_max if reader.depth_samples else None,
        "mean_routed": _mean_routed(record),
        "num_hits_optimal": None if record.optimal_hits is None else sum(record.optimal_hits.values()),
        "load_average_before": record.load_before,
        "load_average_after": record.load_after,
    }
    prefetching = record.prefetch is not None
    row |= {
        phase: record.counters[phase].to_row(prefetching=prefetching) if phase in record.counters else None
        for phase in PHASES
    }
    if record.prefetch is not None:
        row |= _prefetch_columns(record.prefetch)
    if measurement.path == "speculative":
        row |= _speculative_columns(record, verify_width)
    return row


def _prefetch_columns(counters: PrefetchCounters) -> Row:
    layers = counters.layers.values()
    routed = sum(layer.num_routed for layer in layers)
    return {
        "num_predictions": sum(layer.num_predictions for layer in layers),
        "predict_recall_ratio": sum(layer.num_routed_predicted for layer in layers) / routed if routed else None,
        "prefetch_window_mean_s": counters.window_s / counters.num_windows if counters.num_windows else None,
        "prefetch_window_n": counters.num_windows,
        "predict_host_s": counters.predict_s,
        "submit_host_s": counters.submit_s,
        "promote_host_s": counters.take_s + counters.route_s + counters.place_s,
        "promote_take_host_s": counters.take_s,
        "promote_route_host_s": counters.route_s,
        "promote_place_host_s": counters.place_s,
    }


def step_rows(record: Record) -> list[Row]:
    return [
        {
            "instrumented": record.measurement.kind == "instrumented",
            "repeat_index": record.measurement.repeat_index,
            "step_index": index,
            "num_drafted": step.num_drafted,
            "num_accepted": step.num_accepted,
            "num_emitted": step.num_emitted,
            "replayed_tokens": step.num_replayed_tokens,
            "at_s": step.at_s,
        }
        for index, step in enumerate(record.steps)
    ]


def layer_rows(records: Iterable[Record]) -> list[Row]:
    """Unions and hits per (path, layer, forward width) of the generation phases of instrumented repeats."""
    groups: dict[tuple[str, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    foreseen: dict[tuple[str, int, int], list[LayerForesight]] = defaultdict(list)
    optimal: dict[tuple[str, int, int], int] = defaultdict(int)
    for record in records:
        for (layer, width), hits in (record.optimal_hits or {}).items():
            optimal[record.measurement.path, layer, width] += hits
        for (layer, width), foresight in (record.prefetch.layers if record.prefetch else {}).items():
            foreseen[record.measurement.path, layer, width].append(foresight)
        for routing in record.routings:
            if routing.phase != "prefill":
                key = (record.measurement.path, routing.layer, routing.forward_width)
                groups[key].append((routing.num_union, routing.num_hits, routing.num_late))
    rows = []
    for (path, layer, width), counts in sorted(groups.items()):
        unions = np.array([union for union, _, _ in counts])
        hits, late = sum(hit for _, hit, _ in counts), sum(late for _, _, late in counts)
        rows.append(
            {
                "path": path,
                "layer": layer,
                "forward_width": width,
                "num_forwards": len(counts),
                "union_mean": float(unions.mean()),
                "union_p50": float(np.percentile(unions, 50)),
                "union_p99": float(np.percentile(unions, 99)),
                "union_max": int(unions.max()),
                "num_routed": int(unions.sum()),
                "num_hits": hits,
                "num_disk_loads": int(unions.sum()) - hits - late,
                "num_hits_optimal": optimal.get((path, layer, width)),
                **_foresight_columns(foreseen.get((path, layer, width), [])),
            }
        )
    return rows


def _foresight_columns(found: Sequence[LayerForesight]) -> Row:
    """Nothing for a layer that nobody predicts for."""
    if not found:
        return {}
    return {
        "num_predictions": sum(foresight.num_predictions for foresight in found),
        "num_right_by_rank": np.sum([foresight.right_by_rank for foresight in found], axis=0).tolist(),
        "num_routed_predicted": sum(foresight.num_routed_predicted for foresight in found),
        "num_prefetch_submitted": sum(foresight.num_submitted for foresight in found),
        "num_prefetch_hits": sum(foresight.num_hits for foresight in found),
        "num_misses_predicted_late": sum(foresight.num_late for foresight in found),
    }


def token_rows(path: str, record: Record, evidence: Record | None) -> list[Row]:
    """The ids of one generation; margins where the evidence emitted the same ids up to there."""
    rows: list[Row] = []
    margins_hold = evidence is not None
    for index, token in enumerate(record.generation.token_ids):
        row: Row = {"path": path, "token_index": index, "token_id": token}
        if evidence is not None and margins_hold and index < len(evidence.logits):
            margins_hold = evidence.generation.token_ids[index] == token
            if margins_hold:
                row |= _margin(evidence.logits[index])
        rows.append(row)
    return rows


def trace_rows(records: Iterable[Record]) -> list[Row]:
    return [
        {
            "path": record.measurement.path,
            "phase": routing.phase,
            "forward_index": routing.forward_index,
            "forward_width": routing.forward_width,
            "layer": routing.layer,
            "position": position,
            "experts": experts.tolist(),
        }
        for record in records
        if record.measurement.repeat_index == 0
        for routing in record.routings
        for position, experts in enumerate(routing.experts)
    ]


def event_rows(records: Iterable[Record]) -> list[Row]:
    return [
        {
            "path": record.measurement.path,
            "name": span.name,
            "phase": span.phase,
            "forward_index": span.forward_index,
            "layer": span.layer,
            "expert": span.expert,
            "thread": span.thread,
            "start_s": span.start_s,
            "end_s": span.end_s,
            "bytes": span.num_bytes,
        }
        for record in records
        for span in record.spans
    ]


def check_rows(checks: Iterable[Check]) -> list[Row]:
    return [asdict(check) for check in checks]


def exactness_columns(exactness: Exactness, control: WidthControl | None) -> Row:
    return {
        "exact": exactness.verdict == "identical",
        "exactness": exactness.verdict,
        "num_mismatches": exactness.difference.num_mismatches,
        "first_mismatch_index": exactness.difference.first,
        "mismatch_gap": exactness.gap,
        "logit_quantum": exactness.quantum,
        "width_logit_diff_max": control.diff_max if control else None,
        "width_logit_diff_p99": control.diff_p99 if control else None,
        "width_logit_gap_shift_max": control.gap_shift_max if control else None,
    }


def cost_columns(costs: Costs, records: Sequence[Record]) -> Row:
    """What speculation costs on this machine, and what this prompt's measured repeats were to gain by it and gained."""
    measured = [record for record in records if record.measurement.kind == "measured"]
    rates = {
        path: [rate for r in measured if r.measurement.path == path and (rate := r.generation.decode_tok_s) is not None]
        for path in PATHS
    }
    return {
        "verify_cost_s": list(costs.verify_s),
        "draft_cost_s": costs.draft_s,
        "head_sync_cost_s": costs.head_sync_s,
        "predicted_speedup": predicted_speedup(costs, [step for record in measured for step in record.steps]),
        "measured_speedup": median(rates["speculative"]) / median(rates["greedy"]) if all(rates.values()) else None,
    }


def _speculative_columns(record: Record, verify_width: int) -> Row:
    steps = record.steps
    positions = range(verify_width - 1)
    row: Row = {
        "num_steps": len(steps),
        "num_direct_commits": sum(step.num_direct_commits for step in steps),
        "num_replays": sum(step.num_replayed_tokens > 0 for step in steps),
        "num_replayed_tokens": sum(step.num_replayed_tokens for step in steps),
        "accept_histogram": [sum(step.num_accepted == n for step in steps) for n in range(verify_width)],
        "num_drafted_by_position": [sum(step.num_drafted > i for step in steps) for i in positions],
        "num_accepted_by_position": [sum(step.num_accepted > i for step in steps) for i in positions],
    }
    if record.stage_s is not None:
        row |= {f"{stage}_s": seconds for stage, seconds in record.stage_s.items()}
    return row


def _mean_routed(record: Record) -> float | None:
    """Mean distinct experts per layer and generation forward."""
    phases = [counters for phase, counters in record.counters.items() if phase != "prefill"]
    layers = sum(counters.num_layers_fast + counters.num_layers_fallback for counters in phases)
    return sum(counters.num_routed for counters in phases) / layers if layers else None


def _margin(logits: Sequence[float] | np.ndarray) -> Row:
    values = np.asarray(logits)
    best, second = np.argsort(-values, kind="stable")[:2]
    return {"top2_margin": float(values[best]) - float(values[second]), "runner_up_id": int(second)}

"""One task from start to rows: open the engine, walk the protocol for each prompt, judge, and build the tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from worker.benchmark import checks
from worker.benchmark.costs import measure_costs
from worker.benchmark.exactness import Exactness, WidthControl, compare_widths, judge
from worker.benchmark.measure import Record, forced_logits, measure
from worker.benchmark.protocol import Measurement, plan
from worker.benchmark.rows import (
    Row,
    check_rows,
    cost_columns,
    event_rows,
    exactness_columns,
    layer_rows,
    repeat_row,
    step_rows,
    to_tables,
    token_rows,
    trace_rows,
)
from worker.benchmark.session import Session, TokenizedPrompt, open_session
from worker.contract.build import build_hash
from worker.contract.schema import RUNS, SCHEMA_VERSION
from worker.contract.spool import Progress
from worker.contract.task import Task
from worker.machine.identify import MachineIdentity, identify
from worker.measure.backend import on_cpu
from worker.measure.memory import settled_active_bytes
from worker.mtp.predict import Costs

OnProgress = Callable[[Progress], None]
_SETUP_SPANS = {
    "prepare": (0.0, 0.02),
    "verify": (0.02, 0.04),
    "calibrate": (0.04, 0.045),
    "load": (0.045, 0.048),
    "trial": (0.048, 0.05),
}
_SETUP_FRACTION = 0.05
"""Share of a task's progress given to preparing and loading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabels:
    """Who asked for this run; carried by every row so that late results can be told from current ones."""

    study_id: str
    attempt_id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _PromptResult:
    prompt: TokenizedPrompt
    started_at: datetime
    records: tuple[Record, ...]
    timelines: tuple[Record, ...]
    exactness: Exactness
    control: WidthControl | None
    checks: tuple[checks.Check, ...]
    num_pinned: int
    active_bytes: int
    start_to_first_token_s: float
    measure_s: float


def run_task(
    task: Task, labels: RunLabels, cache: Path, on_progress: OnProgress = lambda progress: None
) -> dict[str, pa.Table]:
    """Run the whole benchmark and return every table of the contract.

    Raises: TaskError, CheckpointError, StorageError. A mismatch of tokens is a result, not an error.
    """
    process_started = psutil.Process().create_time()
    process_start_s = time.time() - process_started

    def on_phase(phase: str, fraction: float, detail: str) -> None:
        start, end = _SETUP_SPANS[phase]
        on_progress(Progress(phase=phase, fraction=start + fraction * (end - start), detail=detail))

    session = open_session(task, cache, on_phase)
    try:
        results: list[_PromptResult] = []
        costs: Costs | None = None
        for index, prompt in enumerate(session.prompts):
            reporter = _Reporter(session, prompt, index, on_progress)
            results.append(_run_prompt(session, prompt, reporter, process_started))
            if costs is None:
                reporter.costs()
                costs = measure_costs(session, prompt, results[0].records)
        assert costs is not None
        identity = identify()
        tables = _tables(session, labels, identity, process_start_s, results, costs)
    finally:
        session.close()
    on_progress(Progress(phase="done", fraction=1.0))
    return tables


class _Reporter:
    """Turns finished measurements into progress, with the whole task as the measure."""

    def __init__(self, session: Session, prompt: TokenizedPrompt, index: int, on_progress: OnProgress) -> None:
        self._prompt, self._index, self._emit = prompt, index, on_progress
        self._num_prompts = len(session.prompts)
        self._repeats = session.task.protocol.repeats
        self._tok_s: float | None = None

    def before(self, measurement: Measurement, done: int, total: int) -> None:
        measured = measurement.kind == "measured"
        self._report(
            measurement.path if measured else measurement.kind, done / total, measurement if measured else None
        )

    def checks(self) -> None:
        self._report("checks", 1.0, None)

    def costs(self) -> None:
        self._report("costs", 1.0, None)

    def after(self, record: Record) -> None:
        generation = record.generation
        if record.measurement.kind == "measured" and generation.decode_s > 0:
            self._tok_s = (len(generation.token_ids) - 1) / generation.decode_s

    def _report(self, phase: str, fraction: float, measurement: Measurement | None) -> None:
        overall = _SETUP_FRACTION + (1 - _SETUP_FRACTION) * (self._index + fraction) / self._num_prompts
        self._emit(
            Progress(
                phase=phase,
                fraction=overall,
                prompt_id=self._prompt.prompt.id,
                repeat=measurement.repeat_index + 1 if measurement else None,
                repeats=self._repeats if measurement else None,
                tok_s=self._tok_s,
            )
        )


def _run_prompt(
    session: Session, prompt: TokenizedPrompt, reporter: _Reporter, process_started: float
) -> _PromptResult:
    started_at, start = datetime.now(tz=UTC), time.perf_counter()
    for pool in session.target.pools:
        pool.unpin()
    measurements = plan(session.task.protocol)
    records: list[Record] = []
    timelines: list[Record] = []
    first_token_s: float | None = None
    for done, measurement in enumerate(measurements):
        reporter.before(measurement, done, len(measurements))
        began = time.time()
        record = measure(session, prompt, measurement)
        first_token_s = first_token_s or began - process_started + record.generation.ttft_s
        reporter.after(record)
        if measurement.kind == "calibrate":
            _pin_hottest(session, record)
        if measurement.leaves_row:
            records.append(record)
        elif measurement.kind == "timeline":
            timelines.append(record)
    reporter.checks()
    exactness, control = _judge(session, prompt, records)
    num_pinned = session.target.num_pinned_experts
    found = _checks(session, records, control)
    assert first_token_s is not None
    return _PromptResult(
        prompt=prompt,
        started_at=started_at,
        records=tuple(records),
        timelines=tuple(timelines),
        exactness=exactness,
        control=control,
        checks=found,
        num_pinned=num_pinned,
        active_bytes=settled_active_bytes(),
        start_to_first_token_s=first_token_s,
        measure_s=time.perf_counter() - start,
    )


def _pin_hottest(session: Session, record: Record) -> None:
    """Pin each layer's most routed experts of the calibration run; ties go to the lower id. Mutates: the pools."""
    count = session.task.protocol.pin_hot_experts
    for pool in session.target.pools:
        ids = [routing.experts.reshape(-1) for routing in record.routings if routing.layer == pool.layer]
        uses = np.bincount(np.concatenate(ids), minlength=pool.num_experts)
        hottest = np.argsort(-uses, kind="stable")[:count]
        pool.pin(hottest[uses[hottest] > 0])


def widths_are_bit_equal() -> bool:
    """Whether this backend computes a forward of any width bit for bit as forwards of width one: the CPU backend does."""
    return on_cpu()


def _judge(session: Session, prompt: TokenizedPrompt, records: list[Record]) -> tuple[Exactness, WidthControl | None]:
    greedy_record = _first(records, "greedy", "measured")
    speculative = _first(records, "speculative", "measured")
    evidence = _first(records, "greedy", "instrumented")
    greedy_ids = greedy_record.generation.token_ids
    same = evidence.generation.token_ids == greedy_ids
    width_one = evidence.logits if same else ()
    forced = forced_logits(session, prompt, greedy_ids)
    control = compare_widths(width_one[1:], forced)
    exactness = judge(
        greedy_ids,
        speculative.generation.token_ids,
        width_one_logits=width_one,
        logits_dtype=evidence.logits_dtype,
        control=control,
        widths_are_bit_equal=widths_are_bit_equal(),
    )
    return exactness, control


def _checks(session: Session, records: list[Record], control: WidthControl | None) -> tuple[checks.Check, ...]:
    found = [
        checks.byte_oracle(session, seed=0),
        checks.repeatable(records, "greedy"),
        checks.repeatable(records, "speculative"),
        checks.width_logits(control, widths_are_bit_equal=widths_are_bit_equal()),
        checks.counters_balance(session, records),
        checks.record_digests(session),
        checks.write_visibility(session),
    ]
    if session.speculation.num_draft_tokens:
        found.append(checks.mtp_attachment(records))
    return tuple(found)


def _first(records: list[Record], path: str, kind: str) -> Record:
    return next(r for r in records if r.measurement.path == path and r.measurement.kind == kind)


def _tables(
    session: Session,
    labels: RunLabels,
    identity: MachineIdentity,
    process_start_s: float,
    results: list[_PromptResult],
    costs: Costs,
) -> dict[str, pa.Table]:
    rows: dict[str, list[Row]] = {}
    common = _common_columns(session, labels, identity, process_start_s)
    width = session.speculation.verify_width
    for result in results:
        keys = {
            "study_id": labels.study_id,
            "task_id": session.task.id,
            "attempt_id": labels.attempt_id,
            "prompt_id": result.prompt.prompt.id,
        }
        greedy_record = _first(list(result.records), "greedy", "measured")
        speculative = _first(list(result.records), "speculative", "measured")
        evidence = _first(list(result.records), "greedy", "instrumented")
        instrumented = [r for r in result.records if r.measurement.kind == "instrumented"]
        made = {
            "runs": [common | _prompt_columns(session, result) | cost_columns(costs, result.records)],
            "repeats": [repeat_row(record, width) for record in result.records],
            "steps": [row for record in result.records for row in step_rows(record)],
            "layers": layer_rows(instrumented),
            "tokens": token_rows("greedy", greedy_record, evidence) + token_rows("speculative", speculative, None),
            "checks": check_rows(result.checks),
            "trace": trace_rows(instrumented),
            "events": event_rows(result.timelines),
        }
        for name, new in made.items():
            rows.setdefault(name, []).extend(keys | row for row in new)
    return to_tables(rows)


def _common_columns(
    session: Session, labels: RunLabels, identity: MachineIdentity, process_start_s: float
) -> dict[str, Any]:
    task, manifest, protocol, target = session.task, session.manifest, session.task.protocol, session.target
    machine = {name: getattr(identity, name) for name in RUNS.names if hasattr(identity, name)}
    return machine | {
        "schema_version": SCHEMA_VERSION,
        "build_hash": build_hash(),
        "synthetic": False,
        "node": labels.node,
        "checkpoint": manifest.name,
        "checkpoint_digest": manifest.source_digest,
        "layout_version": manifest.layout_version,
        "quantization": str(manifest.expert_quantization),
        "mtp_quantization": str(manifest.mtp),
        "num_moe_layers": len(manifest.moe_layers),
        "num_experts": manifest.num_experts,
        "experts_per_token": manifest.experts_per_token,
        "expert_record_bytes": manifest.record.record_bytes,
        "max_tokens": protocol.max_tokens,
        "warmup_tokens": protocol.resolved_warmup_tokens,
        "rewarm_tokens": protocol.rewarm_tokens,
        "repeats": protocol.repeats,
        "instrumented_repeats": protocol.instrumented_repeats,
        "order": protocol.order,
        "stop_at_eos": protocol.stop_at_eos,
        "verify_width": task.verify_width,
        "num_draft_tokens": task.num_draft_tokens,
        "verify_mode": task.verify_mode,
        "rollback": task.rollback,
        "draft_policy": task.draft_policy,
        "draft_confidence": task.draft_confidence,
        "slots_per_layer": session.slots_by_layer[0] if task.memory_budget_bytes is None else None,
        "memory_budget_bytes": task.memory_budget_bytes,
        "allocation": task.resolved_allocation,
        "slots_by_layer": list(session.slots_by_layer),
        "num_pool_slots": target.num_pool_slots,
        "eviction": task.eviction,
        "pin_hot_experts": protocol.pin_hot_experts,
        "pin_calibration_tokens": protocol.pin_calibration_tokens,
        "prefill_chunk_tokens": task.prefill_chunk_tokens,
        "compute_dtype": manifest.compute_dtype,
        "group_limit": target.run.group_limit,
        "reader_threads": task.reader_threads,
        "queue_depth": task.queue_depth,
        "read_path": target.read_path,
        "page_cache": "bypass" if session.settings.bypass_page_cache else "use",
        "prefetch": "on" if session.prefetch.on else "off",
        "prefetch_ranks": target.prefetcher.ranks,
        "prefetch_trial_off_s": session.prefetch.trial_off_s,
        "prefetch_trial_on_s": session.prefetch.trial_on_s,
        "keep_warm": "on" if session.settings.keep_warm else "off",
        "cache_limit_bytes": session.limits.cache_bytes,
        "mlx_wired_limit_bytes": session.limits.wired_bytes,
        "process_start_s": process_start_s,
        "prepare_s": session.times.prepare_s,
        "verify_records_s": session.times.verify_records_s,
        "allocate_s": session.times.allocate_s,
        "load_s": session.times.load_s,
        "weights_bytes": target.weights_bytes,
        "expert_pool_bytes": target.expert_pool_bytes,
        "staging_bytes": target.staging_bytes,
        "mtp_head_bytes": session.head.nbytes,
    }


def _prompt_columns(session: Session, result: _PromptResult) -> dict[str, Any]:
    prompt = result.prompt.prompt
    target = session.target
    attributed = target.weights_bytes + target.expert_pool_bytes + session.head.nbytes
    return exactness_columns(result.exactness, result.control) | {
        "started_at": result.started_at,
        "finished_at": datetime.now(tz=UTC),
        "prompt_category": prompt.category,
        "prompt_digest": prompt.digest,
        "prompt_text": prompt.text,
        "num_prompt_tokens": len(result.prompt.token_ids),
        "num_pinned_experts": result.num_pinned,
        "start_to_first_token_s": result.start_to_first_token_s,
        "measure_s": result.measure_s,
        "active_bytes": result.active_bytes,
        "unattributed_bytes": result.active_bytes - attributed,
    }

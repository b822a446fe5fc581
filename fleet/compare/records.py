"""The stored rows as typed values: the columns of the worker's tables that a comparison reads, under their own names.

A field is called what its column is called: reading a row is one comprehension, and a renamed column fails at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What one phase of one repeat did, over all layers. Fields as in the schema's COUNTERS."""

    num_forwards: int | None
    num_routed: int | None
    num_hits: int | None
    num_disk_loads: int | None
    disk_bytes: int | None
    num_predicted: int | None
    num_prefetch_submitted: int | None
    num_prefetch_loads: int | None
    num_prefetch_hits: int | None
    num_prefetch_evicted: int | None
    num_prefetch_cancelled: int | None
    num_prefetch_dropped: int | None
    num_misses_predicted_late: int | None
    num_misses_predicted_evicted: int | None
    num_misses_predicted_dropped: int | None
    num_misses_unpredicted: int | None
    num_layers_fast: int | None
    num_layers_fallback: int | None
    route_wait_s: float | None
    read_wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One repeat of one path, as measured. Fields as in the `repeats` table."""

    path: str | None
    instrumented: bool | None
    repeat_index: int | None
    sequence_index: int | None
    num_tokens: int | None
    decode_tokens: int | None
    stop_reason: str | None
    prefill_s: float | None
    ttft_s: float | None
    decode_s: float | None
    num_steps: int | None
    num_direct_commits: int | None
    num_replays: int | None
    num_replayed_tokens: int | None
    accept_histogram: tuple[int, ...] | None
    num_drafted_by_position: tuple[int, ...] | None
    num_accepted_by_position: tuple[int, ...] | None
    draft_s: float | None
    snapshot_s: float | None
    verify_s: float | None
    commit_s: float | None
    replay_s: float | None
    head_sync_s: float | None
    finalize_s: float | None
    prefill: Counters | None
    decode: Counters | None
    verify: Counters | None
    reader_bytes: int | None
    reader_active_s: float | None
    prefetch_window_mean_s: float | None
    prefetch_window_n: int | None
    predict_recall_ratio: float | None
    num_hits_optimal: int | None
    num_predictions: int | None
    predict_host_s: float | None
    submit_host_s: float | None
    promote_host_s: float | None
    peak_bytes: int | None
    active_bytes: int | None
    cache_bytes: int | None
    rss_bytes: int | None
    load_average_before: float | None
    load_average_after: float | None

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens after the first, per second from the first to the last."""
        if self.decode_tokens is None or not self.decode_s or self.decode_tokens < 2:
            return None
        return (self.decode_tokens - 1) / self.decode_s

    @property
    def e2e_tok_s(self) -> float | None:
        """All emitted tokens, per second of prefill and decode together."""
        if self.num_tokens is None or self.prefill_s is None or self.decode_s is None:
            return None
        seconds = self.prefill_s + self.decode_s
        return self.num_tokens / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One verify step: how many drafts the head proposed and how many of them the target accepted."""

    num_drafted: int | None
    num_accepted: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One control of one prompt: how often it ran and how often it failed."""

    name: str | None
    num_run: int | None
    num_failed: int | None
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One prompt of one attempt, as stored. Fields as in the `runs` table."""

    study_id: str | None
    task_id: str | None
    attempt_id: str | None
    prompt_id: str | None
    schema_version: int | None
    build_hash: str | None
    synthetic: bool | None
    node: str | None
    finished_at: datetime | None
    hardware_model: str | None
    chip: str | None
    cpu_cores: int | None
    cpu_tiers: str | None
    gpu_cores: int | None
    memory_bytes: int | None
    os_name: str | None
    os_version: str | None
    os_build: str | None
    mlx_device: str | None
    mlx_version: str | None
    mlx_lm_version: str | None
    mlx_wheel_tag: str | None
    python_version: str | None
    wired_limit_bytes: int | None
    power_mode: str | None
    nice: int | None
    omp_num_threads: int | None
    checkpoint: str | None
    checkpoint_digest: str | None
    layout_version: int | None
    quantization: str | None
    mtp_quantization: str | None
    num_moe_layers: int | None
    num_experts: int | None
    experts_per_token: int | None
    prompt_category: str | None
    num_prompt_tokens: int | None
    max_tokens: int | None
    warmup_tokens: int | None
    rewarm_tokens: int | None
    order: str | None
    stop_at_eos: bool | None
    verify_width: int | None
    verify_mode: str | None
    rollback: str | None
    draft_policy: str | None
    draft_confidence: float | None
    slots_per_layer: int | None
    memory_budget_bytes: int | None
    allocation: str | None
    slots_by_layer: tuple[int, ...] | None
    num_pool_slots: int | None
    eviction: str | None
    pin_hot_experts: int | None
    pin_calibration_tokens: int | None
    num_pinned_experts: int | None
    prefill_chunk_tokens: int | None
    compute_dtype: str | None
    group_limit: int | None
    reader_threads: int | None
    queue_depth: int | None
    read_path: str | None
    page_cache: str | None
    prefetch: str | None
    prefetch_ranks: int | None
    prefetch_trial_off_s: float | None
    prefetch_trial_on_s: float | None
    keep_warm: str | None
    cache_limit_bytes: int | None
    mlx_wired_limit_bytes: int | None
    process_start_s: float | None
    prepare_s: float | None
    verify_records_s: float | None
    allocate_s: float | None
    load_s: float | None
    start_to_first_token_s: float | None
    measure_s: float | None
    active_bytes: int | None
    weights_bytes: int | None
    expert_pool_bytes: int | None
    staging_bytes: int | None
    mtp_head_bytes: int | None
    unattributed_bytes: int | None
    verify_cost_s: tuple[float, ...] | None
    draft_cost_s: float | None
    head_sync_cost_s: float | None
    predicted_speedup: float | None
    measured_speedup: float | None
    exact: bool | None
    exactness: str | None
    num_mismatches: int | None
    first_mismatch_index: int | None
    mismatch_gap: float | None
    logit_quantum: float | None
    width_logit_diff_max: float | None
    width_logit_diff_p99: float | None
    width_logit_gap_shift_max: float | None

"""The Arrow tables a run returns: one schema each, versioned, held by golden files in tests/contract.

Raw measurements only: counts, seconds, bytes, token ids. Not measured is null, never zero. Every ratio, median, interval
and verdict over several rows is computed on the head. Formula, unit and boundary of every column: worker/METHODOLOGY.md.

    runs      one row per (attempt, prompt): configuration, machine, memory split, exactness
    repeats   one row per repeat of one path: times, counters by phase, memory, reader
    steps     one row per verify step of a speculative repeat
    layers    one row per (path, layer, forward width) of the instrumented repeats: unions, hits, loads
    tokens    one row per emitted token of each path
    checks    one row per control: how often it ran, how often it failed
    trace     one row per (forward, layer, position) of the instrumented repeats: the routed experts
    events    on request, one row per layer, wait and read of one unmeasured generation of each path
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 3

_S, _I, _F, _B = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")
_INTS, _FLOATS = pa.list_(_I), pa.list_(_F)

_KEYS: list[tuple[str, pa.DataType]] = [
    ("study_id", _S),
    ("task_id", _S),
    ("attempt_id", _S),
    ("prompt_id", _S),
]

COUNTERS = pa.struct(
    [
        ("num_forwards", _I),
        ("num_routed", _I),
        ("num_hits", _I),
        ("num_disk_loads", _I),
        ("disk_bytes", _I),
        ("num_predicted", _I),
        ("num_prefetch_submitted", _I),
        ("num_prefetch_loads", _I),
        ("num_prefetch_hits", _I),
        ("num_prefetch_evicted", _I),
        ("num_prefetch_cancelled", _I),
        ("num_prefetch_dropped", _I),
        ("num_misses_predicted_late", _I),
        ("num_misses_predicted_evicted", _I),
        ("num_misses_predicted_dropped", _I),
        ("num_misses_unpredicted", _I),
        ("num_layers_fast", _I),
        ("num_layers_fallback", _I),
        ("num_repairs", _I),
        ("route_wait_s", _F),
        ("read_wait_s", _F),
    ]
)
"""What happened in one phase (prefill, decode or verify) of one repeat, over all layers."""

RUNS = pa.schema(
    [
        *_KEYS,
        ("schema_version", _I),
        ("build_hash", _S),
        ("synthetic", _B),
        ("node", _S),
        ("started_at", _TIME),
        ("finished_at", _TIME),
        # the machine
        ("hardware_model", _S),
        ("chip", _S),
        ("cpu_cores", _I),
        ("cpu_tiers", _S),
        ("gpu_cores", _I),
        ("memory_bytes", _I),
        ("os_name", _S),
        ("os_version", _S),
        ("os_build", _S),
        ("mlx_device", _S),
        ("mlx_version", _S),
        ("mlx_lm_version", _S),
        ("mlx_wheel_tag", _S),
        ("python_version", _S),
        ("wired_limit_bytes", _I),
        ("power_mode", _S),
        ("nice", _I),
        ("omp_num_threads", _I),
        # the checkpoint
        ("checkpoint", _S),
        ("checkpoint_digest", _S),
        ("layout_version", _I),
        ("quantization", _S),
        ("mtp_quantization", _S),
        ("num_moe_layers", _I),
        ("num_experts", _I),
        ("experts_per_token", _I),
        ("expert_record_bytes", _I),
        # the resolved configuration
        ("prompt_category", _S),
        ("prompt_digest", _S),
        ("prompt_text", _S),
        ("num_prompt_tokens", _I),
        ("max_tokens", _I),
        ("warmup_tokens", _I),
        ("rewarm_tokens", _I),
        ("repeats", _I),
        ("instrumented_repeats", _I),
        ("order", _S),
        ("stop_at_eos", _B),
        ("verify_width", _I),
        ("num_draft_tokens", _I),
        ("verify_mode", _S),
        ("rollback", _S),
        ("draft_policy", _S),
        ("draft_confidence", _F),
        ("slots_per_layer", _I),
        ("memory_budget_bytes", _I),
        ("allocation", _S),
        ("slots_by_layer", _INTS),
        ("num_pool_slots", _I),
        ("eviction", _S),
        ("pin_hot_experts", _I),
        ("pin_calibration_tokens", _I),
        ("num_pinned_experts", _I),
        ("prefill_chunk_tokens", _I),
        ("compute_dtype", _S),
        ("group_limit", _I),
        ("reader_threads", _I),
        ("queue_depth", _I),
        ("read_path", _S),
        ("page_cache", _S),
        ("prefetch", _S),
        ("prefetch_ranks", _I),
        ("prefetch_trial_off_s", _F),
        ("prefetch_trial_on_s", _F),
        ("keep_warm", _S),
        ("cache_limit_bytes", _I),
        ("mlx_wired_limit_bytes", _I),
        # times around the measurements
        ("process_start_s", _F),
        ("prepare_s", _F),
        ("verify_records_s", _F),
        ("allocate_s", _F),
        ("load_s", _F),
        ("start_to_first_token_s", _F),
        ("measure_s", _F),
        # memory after clearing reclaimable buffers
        ("active_bytes", _I),
        ("weights_bytes", _I),
        ("expert_pool_bytes", _I),
        ("staging_bytes", _I),
        ("mtp_head_bytes", _I),
        ("unattributed_bytes", _I),
        # what speculation costs on this machine, and what it was expected to bring
        ("verify_cost_s", _FLOATS),
        ("draft_cost_s", _F),
        ("head_sync_cost_s", _F),
        ("predicted_speedup", _F),
        ("measured_speedup", _F),
        # exactness
        ("exact", _B),
        ("exactness", _S),
        ("num_mismatches", _I),
        ("first_mismatch_index", _I),
        ("mismatch_gap", _F),
        ("logit_quantum", _F),
        ("width_logit_diff_max", _F),
        ("width_logit_diff_p99", _F),
        ("width_logit_gap_shift_max", _F),
    ]
)

REPEATS = pa.schema(
    [
        *_KEYS,
        ("path", _S),
        ("instrumented", _B),
        ("repeat_index", _I),
        ("sequence_index", _I),
        ("started_at", _TIME),
        ("num_tokens", _I),
        ("decode_tokens", _I),
        ("stop_reason", _S),
        ("prefill_s", _F),
        ("ttft_s", _F),
        ("decode_s", _F),
        ("num_steps", _I),
        ("num_direct_commits", _I),
        ("num_replays", _I),
        ("num_replayed_tokens", _I),
        ("accept_histogram", _INTS),
        ("num_drafted_by_position", _INTS),
        ("num_accepted_by_position", _INTS),
        ("draft_s", _F),
        ("snapshot_s", _F),
        ("verify_s", _F),
        ("commit_s", _F),
        ("replay_s", _F),
        ("head_sync_s", _F),
        ("finalize_s", _F),
        ("prefill", COUNTERS),
        ("decode", COUNTERS),
        ("verify", COUNTERS),
        ("active_bytes", _I),
        ("peak_bytes", _I),
        ("prefill_peak_bytes", _I),
        ("generation_peak_bytes", _I),
        ("cache_bytes", _I),
        ("rss_bytes", _I),
        ("reader_submitted", _I),
        ("reader_completed", _I),
        ("reader_cancelled", _I),
        ("reader_bytes", _I),
        ("reader_num_reads", _I),
        ("reader_busy_s", _F),
        ("reader_active_s", _F),
        ("reader_queue_depth_mean", _F),
        ("reader_queue_depth_max", _I),
        ("prefetch_window_mean_s", _F),
        ("prefetch_window_n", _I),
        ("predict_recall_ratio", _F),
        ("mean_routed", _F),
        ("num_hits_optimal", _I),
        ("num_predictions", _I),
        ("predict_host_s", _F),
        ("submit_host_s", _F),
        ("promote_host_s", _F),
        ("promote_take_host_s", _F),
        ("promote_route_host_s", _F),
        ("promote_place_host_s", _F),
        ("load_average_before", _F),
        ("load_average_after", _F),
    ]
)

STEPS = pa.schema(
    [
        *_KEYS,
        ("instrumented", _B),
        ("repeat_index", _I),
        ("step_index", _I),
        ("num_drafted", _I),
        ("num_accepted", _I),
        ("num_emitted", _I),
        ("replayed_tokens", _I),
        ("at_s", _F),
    ]
)

LAYERS = pa.schema(
    [
        *_KEYS,
        ("path", _S),
        ("layer", _I),
        ("forward_width", _I),
        ("num_forwards", _I),
        ("union_mean", _F),
        ("union_p50", _F),
        ("union_p99", _F),
        ("union_max", _I),
        ("num_routed", _I),
        ("num_hits", _I),
        ("num_hits_optimal", _I),
        ("num_disk_loads", _I),
        ("num_predictions", _I),
        ("num_right_by_rank", _INTS),
        ("num_routed_predicted", _I),
        ("num_prefetch_submitted", _I),
        ("num_prefetch_hits", _I),
        ("num_misses_predicted_late", _I),
    ]
)

TOKENS = pa.schema(
    [
        *_KEYS,
        ("path", _S),
        ("token_index", _I),
        ("token_id", _I),
        ("top2_margin", _F),
        ("runner_up_id", _I),
    ]
)

CHECKS = pa.schema(
    [
        *_KEYS,
        ("name", _S),
        ("num_run", _I),
        ("num_failed", _I),
        ("detail", _S),
    ]
)

TRACE = pa.schema(
    [
        *_KEYS,
        ("path", _S),
        ("phase", _S),
        ("forward_index", _I),
        ("forward_width", _I),
        ("layer", _I),
        ("position", _I),
        ("experts", pa.list_(pa.int32())),
    ]
)

EVENTS = pa.schema(
    [
        *_KEYS,
        ("path", _S),
        ("name", _S),
        ("phase", _S),
        ("forward_index", _I),
        ("layer", _I),
        ("expert", _I),
        ("thread", _S),
        ("start_s", _F),
        ("end_s", _F),
        ("bytes", _I),
    ]
)

SCHEMAS: dict[str, pa.Schema] = {
    "runs": RUNS,
    "repeats": REPEATS,
    "steps": STEPS,
    "layers": LAYERS,
    "tokens": TOKENS,
    "checks": CHECKS,
    "trace": TRACE,
    "events": EVENTS,
}

"""One task's loaded engine: checkpoint found and checked, target and head built, prompts tokenized, limits checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlx_lm.utils import load_tokenizer

from worker.benchmark.capacity import floor_of, sizes_of, slots_within, split_by_trace, split_evenly, uniform_slots
from worker.benchmark.trial import PrefetchDecision, try_prefetch
from worker.checkpoint.digests import Stamps
from worker.checkpoint.layout import Manifest, NumpyDtype
from worker.checkpoint.resolve import open_stamps, resolve
from worker.checkpoint.verify import check_files, check_records, check_sizes
from worker.contract.errors import TaskError
from worker.contract.task import Prompt, Task
from worker.decode.generation import Request
from worker.measure.backend import on_metal
from worker.measure.memory import MemoryLimits, cache_limit, recommended_working_set_bytes, wired_limit
from worker.model.build import EngineSettings, backend_dtype, build_target
from worker.model.target import Target
from worker.mtp.generate import Speculation
from worker.mtp.head import MtpHead, load_head

OnPhase = Callable[[str, float, str], None]
"""Called with a phase of `Progress`, the fraction of that phase (0..1) and a detail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTimes:
    """Units: seconds. `num_records_verified` counts records read and hashed now, not remembered from before."""

    prepare_s: float
    verify_records_s: float
    allocate_s: float | None
    load_s: float
    num_records_verified: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedPrompt:
    """A prompt and its token ids."""

    prompt: Prompt
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Everything a measurement needs. Close it when done."""

    task: Task
    manifest: Manifest
    target: Target
    head: MtpHead
    prompts: tuple[TokenizedPrompt, ...]
    stop_ids: frozenset[int]
    speculation: Speculation
    slots_by_layer: tuple[int, ...]
    settings: EngineSettings
    prefetch: PrefetchDecision
    limits: MemoryLimits
    times: LoadTimes

    def close(self) -> None:
        """Release the reading threads and the files, and put MLX's limits back."""
        self.target.close()
        self.limits.restore()

    def request(self, prompt: TokenizedPrompt, max_tokens: int) -> Request:
        return _request(self.task, prompt, max_tokens, self.stop_ids)


def open_session(
    task: Task,
    cache: Path,
    on_phase: OnPhase = lambda phase, fraction, detail: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Session:
    """Load what the task names. Cheap checks come first: nothing is loaded for a task that cannot run.

    Sets MLX's limits of memory, which `close` puts back, as a failure here does.
    Raises: TaskError for a task this checkpoint cannot serve; CheckpointError; StorageError.
    """
    limits = MemoryLimits()
    try:
        return _open(task, cache, on_phase, clock, limits)
    except BaseException:
        limits.restore()
        raise


def _open(task: Task, cache: Path, on_phase: OnPhase, clock: Callable[[], float], limits: MemoryLimits) -> Session:
    stamps = open_stamps(cache)
    start = clock()
    dtype: NumpyDtype | None = backend_dtype() if task.compute_dtype == "auto" else task.compute_dtype
    prepared = resolve(
        task.checkpoint,
        cache=cache,
        compute_dtype=dtype,
        stamps=stamps,
        on_progress=lambda fraction, what: on_phase("prepare", fraction, what),
    )
    manifest, directory = prepared.manifest, prepared.directory
    _check_task(task, directory, manifest)
    prepared_at = clock()
    check_sizes(directory, manifest)
    num_verified = _verify(task, directory, manifest, stamps, on_phase)
    verified_at = clock()
    prompts, stop_ids = _tokenize(task, directory, manifest)
    sizes = sizes_of(task, directory, manifest, _context_tokens(task, prompts))
    limits.set_cache(cache_limit(task.cache_limit_bytes, sizes.working_bytes))
    allocate_at = clock()
    slots = _slots_by_layer(task, directory, manifest, prompts, on_phase)
    allocate_s = clock() - allocate_at
    limits.set_wired(wired_limit(sizes.with_slots_bytes(sum(slots)), recommended_working_set_bytes()))
    on_phase("load", 0.0, manifest.name)
    settings = _settings(task, slots)
    target = build_target(directory, manifest, settings)
    assert manifest.mtp is not None
    head = load_head(directory, manifest.mtp, target)
    loaded_at = clock()
    prefetch = _decide_prefetch(task, target, prompts, on_phase)
    return Session(
        task=task,
        manifest=manifest,
        target=target,
        head=head,
        prompts=prompts,
        stop_ids=stop_ids if task.protocol.stop_at_eos else frozenset(),
        speculation=_speculation(task),
        slots_by_layer=slots,
        settings=settings,
        prefetch=prefetch,
        limits=limits,
        times=LoadTimes(
            prepare_s=prepared_at - start,
            verify_records_s=verified_at - prepared_at,
            allocate_s=None if task.memory_budget_bytes is None else allocate_s,
            load_s=loaded_at - verified_at - allocate_s,
            num_records_verified=num_verified,
        ),
    )


def _check_task(task: Task, directory: Path, manifest: Manifest) -> None:
    """Raises: TaskError for what can be told to be impossible before the files are checked."""
    if manifest.mtp is None:
        raise TaskError(
            f"checkpoint {manifest.name} has no MTP head", "prepare it with --mtp FILE (the tensors named mtp.*)"
        )
    if task.memory_budget_bytes is None:
        uniform_slots(task, manifest)
    else:
        slots_within(task, directory, manifest, context_tokens=_generated_tokens(task))


def _slots_by_layer(
    task: Task,
    directory: Path,
    manifest: Manifest,
    prompts: tuple[TokenizedPrompt, ...],
    on_phase: OnPhase,
) -> tuple[int, ...]:
    if task.memory_budget_bytes is None:
        return (uniform_slots(task, manifest),) * len(manifest.moe_layers)
    num_slots = slots_within(task, directory, manifest, context_tokens=_context_tokens(task, prompts))
    if task.resolved_allocation == "uniform" or num_slots == len(manifest.moe_layers) * manifest.num_experts:
        return split_evenly(task, manifest, num_slots)
    requests = [_request(task, prompt, task.protocol.max_tokens, frozenset()) for prompt in prompts]
    return split_by_trace(
        task,
        directory,
        manifest,
        num_slots,
        settings=_settings(task, floor_of(task, manifest)),
        requests=requests,
        on_request=lambda index: on_phase("calibrate", index / len(requests), prompts[index].prompt.id),
    )


def _settings(task: Task, slots: int | tuple[int, ...]) -> EngineSettings:
    return EngineSettings(
        slots_per_layer=slots,
        eviction=task.eviction,
        reader_threads=task.reader_threads,
        read_path=task.read_path,
        queue_depth=task.queue_depth,
        bypass_page_cache=task.page_cache == "bypass" or (task.page_cache == "auto" and sys.platform == "darwin"),
        prefetch_ranks=task.prefetch_ranks,
        keep_warm=task.keep_warm == "on" or (task.keep_warm == "auto" and on_metal()),
        group_limit=task.group_limit,
    )


def _decide_prefetch(
    task: Task, target: Target, prompts: tuple[TokenizedPrompt, ...], on_phase: OnPhase
) -> PrefetchDecision:
    """What the task says; `auto` lets a trial decide. Where every expert is resident there is nothing to read."""
    if target.is_resident or task.prefetch == "off":
        return PrefetchDecision(on=False)
    if task.prefetch == "on":
        target.use_prefetch(True)
        return PrefetchDecision(on=True)
    on_phase("trial", 0.0, "prefetch")
    decision = try_prefetch(target, _request(task, prompts[0], task.protocol.max_tokens, frozenset()))
    target.telemetry.reset()
    return decision


def _speculation(task: Task) -> Speculation:
    return Speculation(
        verify_width=task.verify_width,
        verify_mode=task.verify_mode,
        rollback=task.rollback,
        draft_policy=task.draft_policy,
        draft_confidence=task.draft_confidence,
    )


def _generated_tokens(task: Task) -> int:
    """Positions after the prompt: the last verify forward may score as many tokens again as it has drafts."""
    return task.protocol.max_tokens + task.num_draft_tokens


def _context_tokens(task: Task, prompts: tuple[TokenizedPrompt, ...]) -> int:
    """Positions of the longest generation."""
    return max(len(prompt.token_ids) for prompt in prompts) + _generated_tokens(task)


def _request(task: Task, prompt: TokenizedPrompt, max_tokens: int, stop_ids: frozenset[int]) -> Request:
    return Request(
        prompt_ids=prompt.token_ids,
        max_tokens=max_tokens,
        stop_ids=stop_ids,
        prefill_chunk_tokens=task.prefill_chunk_tokens,
    )


def _verify(task: Task, directory: Path, manifest: Manifest, stamps: Stamps, on_phase: OnPhase) -> int:
    if task.verify_records == "never":
        return 0
    always = task.verify_records == "always"
    on_phase("verify", 0.0, "")
    check_files(directory, manifest, stamps, always=always)
    return check_records(
        directory, manifest, stamps, always=always, on_progress=lambda fraction: on_phase("verify", fraction, "")
    )


def _tokenize(task: Task, directory: Path, manifest: Manifest) -> tuple[tuple[TokenizedPrompt, ...], frozenset[int]]:
    tokenizer = load_tokenizer(directory)
    tokenized = []
    for prompt in task.prompts:
        if prompt.chat:
            messages = [{"role": "user", "content": prompt.text}]
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        else:
            ids = tokenizer.encode(prompt.text)
        needed = len(ids) + _generated_tokens(task)
        if needed > manifest.max_context_tokens:
            raise TaskError(
                f"prompt {prompt.id!r} has {len(ids)} tokens and with {task.protocol.max_tokens} more needs a context of "
                f"{needed}; {manifest.name} has {manifest.max_context_tokens}",
                "shorten the prompt or lower max_tokens",
            )
        if not ids:
            raise TaskError(f"prompt {prompt.id!r} has no tokens", "give it some text")
        tokenized.append(TokenizedPrompt(prompt=prompt, token_ids=tuple(int(i) for i in ids)))
    return tuple(tokenized), frozenset(int(i) for i in tokenizer.eos_token_ids)

"""A task: everything one benchmark needs and nothing else, frozen and named by its own content.

One task is one point of a study's matrix (a verify width, a number of slots, ...) with all the study's prompts: the model
is loaded once and each prompt is measured by the whole protocol. Its id is a hash of its content, so the same study
submitted twice names the same tasks and resumes instead of repeating.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal, NewType, get_args

from worker.contract.errors import TaskError

TaskId = NewType("TaskId", str)

TASK_VERSION = 3
MAX_VERIFY_WIDTH = 5
BUNDLED_CHECKPOINT = "demo"

Order = Literal["abba", "blocks"]
VerifyMode = Literal["batched", "stepwise"]
Rollback = Literal["capture", "replay"]
Eviction = Literal["lru", "lfu", "lfuda", "s3-fifo"]
Allocation = Literal["auto", "uniform", "trace"]
ComputeDtype = Literal["auto", "float32", "bfloat16", "float16"]
ReadPath = Literal["auto", "direct", "copied", "staged"]
PageCache = Literal["auto", "use", "bypass"]
Choice = Literal["auto", "on", "off"]
DraftPolicy = Literal["fixed", "gated", "off"]
VerifyRecords = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """Where the model comes from.

    `source` is `demo` (the bundled model), a directory made by `worker prepare`, or an MLX-format checkpoint that the
    node prepares into its cache. `mtp` names the MTP sidecar of an MLX-format checkpoint (default: `mtp.safetensors` in
    it). `digest`, when given, is the content the study expects: a node that finds another refuses the task.
    """

    source: str
    mtp: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt. `chat` wraps the text in the tokenizer's chat template; otherwise the text is continued as it stands."""

    id: str
    category: str
    text: str
    chat: bool = True

    @property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the text and of how it is presented."""
        return _digest({"text": self.text, "chat": self.chat})


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How often, how long and in which order a task measures."""

    max_tokens: int = 96
    repeats: int = 3
    warmup_tokens: int | None = None
    """None: as many as `max_tokens`."""
    rewarm_tokens: int = 16
    """Unmeasured tokens after each change of path."""
    order: Order = "abba"
    instrumented_repeats: int = 1
    pin_hot_experts: int = 0
    """Experts of each layer pinned after a calibration run; 0 switches pinning off. Needs order `blocks`."""
    pin_calibration_tokens: int = 32
    stop_at_eos: bool = True
    timeline: bool = False
    """Run each path once more, unmeasured, and keep a timeline of its layers, reads and waits."""

    @property
    def resolved_warmup_tokens(self) -> int:
        return self.max_tokens if self.warmup_tokens is None else self.warmup_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One benchmark: a checkpoint, prompts, the engine's settings and the protocol."""

    checkpoint: CheckpointRef
    prompts: tuple[Prompt, ...]
    verify_width: int = 3
    slots_per_layer: int | None = None
    """Experts of each layer that stay in memory. None: all of them, or as many as `memory_budget_bytes` holds."""
    memory_budget_bytes: int | None = None
    """Bytes for weights, MTP head, working memory and as many experts as then fit; excludes `slots_per_layer`."""
    allocation: Allocation = "auto"
    """How a budget's slots are split over the layers.

    auto: by a trace of the task's own prompts under lru, evenly under the other policies, which gained nothing by it.
    """
    verify_mode: VerifyMode = "batched"
    rollback: Rollback = "capture"
    draft_policy: DraftPolicy = "fixed"
    """fixed: `num_draft_tokens` each step; gated: fewer where the head is unsure; off: none."""
    draft_confidence: float = 0.3
    """`gated`: drafting stops once the product of the head's best probabilities falls below this."""
    eviction: Eviction = "lru"
    compute_dtype: ComputeDtype = "auto"
    """auto: float32 on the CPU backend (bfloat16 is emulated there), the checkpoint's own dtype on a GPU."""
    prefill_chunk_tokens: int = 64
    group_limit: int | None = None
    """Most layers whose routing the host reads together; 1: each layer by itself. None: as many as pay, none on the CPU."""
    reader_threads: int = 8
    queue_depth: int = 16
    """Reads that may be outstanding at once."""
    read_path: ReadPath = "auto"
    page_cache: PageCache = "auto"
    """Whether reads go through the system's page cache. auto: past it on macOS, through it elsewhere."""
    prefetch: Choice = "auto"
    """Read what the next layer will probably need ahead of time. auto: as a short trial on this machine decides."""
    prefetch_ranks: int = 6
    """How many of the predicted experts of each token are read ahead, most probable first."""
    keep_warm: Choice = "auto"
    """Keep the GPU busy with tiny kernels while reads are waited for. auto: on Apple's GPUs only."""
    cache_limit_bytes: int | None = None
    """Most bytes of freed buffers that MLX may keep for reuse. None: the model's estimated working memory."""
    verify_records: VerifyRecords = "auto"
    """auto: check every expert record's digest when the files are new or changed since the last full check."""
    protocol: Protocol = field(default_factory=Protocol)

    def __post_init__(self) -> None:
        """Raises: TaskError for the first setting out of range."""
        _check(self)

    @property
    def id(self) -> TaskId:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        return TaskId(_digest(self.to_dict()))

    @property
    def num_draft_tokens(self) -> int:
        """Drafts per verify forward: the other token that the forward scores is the pending one."""
        return self.verify_width - 1

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        return {"task_version": TASK_VERSION, **dataclasses.asdict(self)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    @property
    def resolved_allocation(self) -> Literal["uniform", "trace"]:
        if self.allocation == "auto":
            return "trace" if self.memory_budget_bytes is not None and self.eviction == "lru" else "uniform"
        return self.allocation

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Task:
        """Raises: TaskError naming the key that is unknown, missing or of the wrong type."""
        data = dict(data)
        version = data.pop("task_version", None)
        if version != TASK_VERSION:
            raise TaskError(
                f"task_version is {version!r}, this build reads {TASK_VERSION}",
                "submit the study again with the build that runs it",
            )
        nested = {
            "checkpoint": _build(CheckpointRef, data.pop("checkpoint", None), "checkpoint"),
            "prompts": tuple(
                _build(Prompt, prompt, f"prompts[{i}]") for i, prompt in enumerate(data.pop("prompts", None) or ())
            ),
            "protocol": _build(Protocol, data.pop("protocol", {}), "protocol"),
        }
        return _build(cls, data | nested, "task")

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Raises: TaskError when the text is no JSON object or no task."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise TaskError(f"the task is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise TaskError("the task is not a JSON object")
        return cls.from_dict(data)


def _digest(value: Any) -> str:
    canonical = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _build(cls: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise TaskError(f"{where} is {type(data).__name__}, expected an object")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := sorted(set(data) - set(fields)):
        raise TaskError(f"{where} has an unknown key {unknown[0]!r}", f"allowed: {', '.join(fields)}")
    required = {
        name
        for name, f in fields.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    if missing := sorted(required - set(data)):
        raise TaskError(f"{where} lacks the key {missing[0]!r}")
    return cls(**data)


_CHOICES: dict[str, tuple[str, ...]] = {
    "verify_mode": get_args(VerifyMode),
    "rollback": get_args(Rollback),
    "eviction": get_args(Eviction),
    "allocation": get_args(Allocation),
    "compute_dtype": get_args(ComputeDtype),
    "read_path": get_args(ReadPath),
    "page_cache": get_args(PageCache),
    "prefetch": get_args(Choice),
    "keep_warm": get_args(Choice),
    "draft_policy": get_args(DraftPolicy),
    "verify_records": get_args(VerifyRecords),
}


def _check(task: Task) -> None:
    protocol = task.protocol
    if not task.prompts:
        raise TaskError("the task has no prompts", "name at least one")
    ids = [prompt.id for prompt in task.prompts]
    if len(set(ids)) != len(ids):
        raise TaskError(
            f"two prompts are called {next(i for i in ids if ids.count(i) > 1)!r}", "prompt ids must be unique"
        )
    _check_ranges(task)
    for name, choices in _CHOICES.items():
        if getattr(task, name) not in choices:
            raise TaskError(f"{name} is {getattr(task, name)!r}, expected one of {', '.join(choices)}")
    if task.slots_per_layer is not None and task.memory_budget_bytes is not None:
        raise TaskError(
            "slots_per_layer and memory_budget_bytes are both set", "set one: the budget decides how many slots fit"
        )
    if task.allocation == "trace" and task.memory_budget_bytes is None:
        raise TaskError("allocation is 'trace' without a memory budget", "set memory_budget_bytes")
    if protocol.order not in get_args(Order):
        raise TaskError(f"order is {protocol.order!r}, expected one of {', '.join(get_args(Order))}")
    if protocol.pin_hot_experts and protocol.order != "blocks":
        raise TaskError(
            "pin_hot_experts needs order 'blocks'", "the greedy repeats must run before anything is pinned: set order"
        )


def _check_ranges(task: Task) -> None:
    protocol = task.protocol
    ranges: dict[str, tuple[Any, int, int | None]] = {
        "verify_width": (task.verify_width, 1, MAX_VERIFY_WIDTH),
        "prefill_chunk_tokens": (task.prefill_chunk_tokens, 1, None),
        "reader_threads": (task.reader_threads, 1, 64),
        "queue_depth": (task.queue_depth, 2, 1024),
        "prefetch_ranks": (task.prefetch_ranks, 1, 64),
        "max_tokens": (protocol.max_tokens, 2, None),
        "repeats": (protocol.repeats, 1, None),
        "rewarm_tokens": (protocol.rewarm_tokens, 0, None),
        "warmup_tokens": (protocol.resolved_warmup_tokens, 0, None),
        "instrumented_repeats": (protocol.instrumented_repeats, 1, None),
        "pin_hot_experts": (protocol.pin_hot_experts, 0, None),
        "pin_calibration_tokens": (protocol.pin_calibration_tokens, 1, None),
    }
    for name, low in (("slots_per_layer", 1), ("memory_budget_bytes", 1), ("group_limit", 1), ("cache_limit_bytes", 0)):
        if getattr(task, name) is not None:
            ranges[name] = (getattr(task, name), low, None)
    for name, (value, low, high) in ranges.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
            expected = f"{low} to {high}" if high is not None else f"{low} or more"
            raise TaskError(f"{name} is {value!r}, expected a whole number, {expected}")
    confidence: Any = task.draft_confidence
    if not isinstance(confidence, int | float) or isinstance(confidence, bool) or not 0 <= confidence <= 1:
        raise TaskError(f"draft_confidence is {confidence!r}, expected a number from 0 to 1")

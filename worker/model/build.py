"""Build the target from a prepared directory: mlx-lm loads the trunk, the pools take the place of the routed experts.

The experts are replaced before anything is evaluated: a stacked expert tensor that is touched once is read whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from mlx_lm.models.qwen3_next import Model, ModelArgs, Qwen3NextSparseMoeBlock
from mlx_lm.utils import load_model

from worker.checkpoint.layout import Manifest, NumpyDtype, expert_file
from worker.contract.errors import CheckpointError, TaskError
from worker.contract.task import ReadPath
from worker.experts.counters import Telemetry
from worker.experts.cuda import CudaCopier
from worker.experts.eviction import policy
from worker.experts.file import ExpertFile
from worker.experts.pool import LayerPool
from worker.experts.prefetch import Prefetcher
from worker.experts.reader import Reader
from worker.experts.routing import MissEstimates, RoutingMode
from worker.experts.slots import SlotArrays, Way, writes_are_visible
from worker.experts.staging import StagingBuffers
from worker.measure.backend import on_cpu, on_cuda
from worker.measure.host import parameter_bytes
from worker.model.foresight import NextRouter
from worker.model.forward import LayerwiseForward, measure_read_cost
from worker.model.groups import GroupTimes
from worker.model.keep_warm import KeepWarm
from worker.model.recurrent import PositionalGatedDeltaNet
from worker.model.streaming_moe import RoutedExpertsPlaceholder, StreamingMoeBlock, StreamingSwitchGLU
from worker.model.target import Target

EXPERTS_ATTRIBUTE = "switch_mlp"
"""Where mlx-lm's MoE block keeps its routed experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How the engine is set up; every value is stored with the rows."""

    slots_per_layer: int | tuple[int, ...]
    """One number for every MoE layer, or one for each."""
    eviction: str = "lru"
    reader_threads: int = 8
    read_path: ReadPath = "auto"
    queue_depth: int = 16
    bypass_page_cache: bool = False
    prefetch: bool = False
    prefetch_ranks: int = 6
    keep_warm: bool = False
    overlap: bool | None = None
    """Whether the device works on while the host waits; None: where it is not the host's own processor."""
    group_limit: int | None = None
    """Most layers whose routing the host reads together; 1: each by itself; None: as many as pay."""
    read_cost_s: float | None = None
    """What a host read is taken to cost when groups are chosen, for good; None: measured, and learnt from what runs."""

    def slots_of(self, num_layers: int) -> tuple[int, ...]:
        """The slots of each MoE layer, in order."""
        if isinstance(self.slots_per_layer, int):
            return (self.slots_per_layer,) * num_layers
        assert len(self.slots_per_layer) == num_layers
        return self.slots_per_layer


def backend_dtype() -> NumpyDtype | None:
    """The dtype to compute in on this backend: float32 on the CPU, where bfloat16 is emulated; else the source's own."""
    return "float32" if on_cpu() else None


def build_target(directory: Path, manifest: Manifest, settings: EngineSettings) -> Target:
    """Load the trunk, install a pool in every MoE layer, and fill those that hold every expert.

    Raises: CheckpointError when the trunk does not load or no layer was wrapped; TaskError for an unusable read path.
    """
    visible = writes_are_visible()
    if settings.read_path == "direct" and not visible:
        raise TaskError("read_path is 'direct', but this backend does not see such writes", "set read_path to 'auto'")
    way, copier = _choose_way(settings.read_path, visible)
    model = _load_trunk(directory)
    weights_bytes = parameter_bytes(model)
    telemetry = Telemetry()
    mode = RoutingMode(MissEstimates(np.zeros(len(model.layers))), overlap=_overlaps(settings))
    reader = Reader(
        settings.reader_threads,
        queue_depth=settings.queue_depth,
        while_waiting=KeepWarm() if settings.keep_warm else None,
        telemetry=telemetry,
    )
    demanded, ahead = (
        StagingBuffers(settings.queue_depth, manifest.record.payload_bytes, copier.allocate if copier else None)
        for _ in range(2)
    )
    prefetcher = Prefetcher(
        reader,
        ahead,
        telemetry,
        ranks=settings.prefetch_ranks,
        experts_per_token=manifest.experts_per_token,
    )
    pools: list[LayerPool] = []
    slots_of_layer = dict(zip(manifest.moe_layers, settings.slots_of(len(manifest.moe_layers)), strict=True))
    for index, layer in enumerate(model.layers):
        if not isinstance(layer.mlp, Qwen3NextSparseMoeBlock):
            continue
        pool = LayerPool(
            layer=index,
            num_experts=manifest.num_experts,
            slots=SlotArrays(
                manifest.record,
                slots_of_layer.get(index, 0),
                way=way,
                copier=copier,
                staging=None if way == "direct" else demanded,
            ),
            file=ExpertFile(
                expert_file(directory, index), index, manifest.record, bypass_page_cache=settings.bypass_page_cache
            ),
            reader=reader,
            policy=policy(settings.eviction),
            telemetry=telemetry,
        )
        setattr(layer.mlp, EXPERTS_ATTRIBUTE, StreamingSwitchGLU(pool, manifest.expert_quantization, mode))
        pools.append(pool)
    if tuple(pool.layer for pool in pools) != manifest.moe_layers:
        raise CheckpointError(
            f"{directory}: {len(pools)} layers were wrapped, the manifest names {manifest.moe_layers}"
        )
    for pool in pools:
        if pool.num_slots == pool.num_experts:
            pool.load_all()
    _look_ahead(model, pools, manifest.experts_per_token)
    target = Target(
        model=model,
        pools=tuple(pools),
        reader=reader,
        telemetry=telemetry,
        run=LayerwiseForward(
            model,
            tuple(pools),
            mode,
            telemetry,
            times=GroupTimes(_read_cost(settings, pools), learns=settings.read_cost_s is None),
            group_limit=_group_limit(settings),
        ),
        weights_bytes=weights_bytes,
        prefetcher=prefetcher,
        staging=(demanded, ahead),
        writes_visible=visible,
        read_path=way,
    )
    target.use_prefetch(settings.prefetch)
    return target


def _look_ahead(model: Model, pools: list[LayerPool], experts_per_token: int) -> None:
    """Give every streaming layer the router of the next one, where that streams too. Mutates: the layers."""
    for pool, following in pairwise(pools):
        if not pool.holds_all and not following.holds_all:
            router = model.layers[following.layer].mlp.gate
            streaming = getattr(model.layers[pool.layer].mlp, EXPERTS_ATTRIBUTE)
            streaming.next_router = NextRouter(router, following, experts_per_token)


def _overlaps(settings: EngineSettings) -> bool:
    return not on_cpu() if settings.overlap is None else settings.overlap


def _group_limit(settings: EngineSettings) -> int | None:
    """On the CPU backend a read costs next to nothing, and reading later only risks work: one layer at a time."""
    return 1 if settings.group_limit is None and on_cpu() else settings.group_limit


def _read_cost(settings: EngineSettings, pools: list[LayerPool]) -> float:
    """What a host read is taken to cost; not measured where no group can be made anyway."""
    if settings.read_cost_s is not None:
        return settings.read_cost_s
    grouping = _group_limit(settings) != 1 and not all(pool.holds_all for pool in pools)
    return measure_read_cost() if grouping else 0.0


def _choose_way(asked: ReadPath, visible: bool) -> tuple[Way, CudaCopier | None]:
    """How records get into slots on this backend. Raises: TaskError when the task asks for a way that does not exist here."""
    if asked == "copied" and not on_cuda():
        raise TaskError("read_path is 'copied', but there is no NVIDIA GPU here", "set read_path to 'auto'")
    if on_cuda() and visible and asked in ("auto", "copied"):
        try:
            return "copied", CudaCopier()
        except OSError as error:
            if asked == "copied":
                raise TaskError(f"read_path is 'copied', but {error}", "set read_path to 'auto'") from error
    return ("direct", None) if visible and asked != "staged" else ("staged", None)


def _load_trunk(directory: Path) -> Model:
    try:
        model, _ = load_model(directory, get_model_classes=lambda config: (_streaming_model, ModelArgs))  # type: ignore[arg-type]
    except (ValueError, KeyError, RuntimeError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{directory} does not load: {first_line}", "prepare it again") from error
    assert isinstance(model, Model)
    return model


def _streaming_model(args: ModelArgs) -> Model:
    """mlx-lm's model, not yet evaluated, without routed experts and with recurrent layers that can record."""
    model = Model(args)
    for layer in model.layers:
        if layer.is_linear:
            layer.linear_attn = PositionalGatedDeltaNet(args)
        if isinstance(layer.mlp, Qwen3NextSparseMoeBlock):
            layer.mlp = StreamingMoeBlock(args)
            setattr(layer.mlp, EXPERTS_ATTRIBUTE, RoutedExpertsPlaceholder())
    return model

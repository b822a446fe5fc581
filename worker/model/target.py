"""The target model as the rest of the worker sees it: forwards that report their routing, and who owns which bytes."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models.qwen3_next import Model

from worker.experts.counters import Phase, Telemetry
from worker.experts.pool import LayerPool
from worker.experts.prefetch import Prefetcher
from worker.experts.reader import Reader
from worker.experts.staging import StagingBuffers
from worker.model.cache import TargetCache
from worker.model.forward import LayerwiseForward


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A loaded model with its pools. Use it from the thread that built it: MLX's streams belong to a thread."""

    model: Model
    pools: tuple[LayerPool, ...]
    reader: Reader
    telemetry: Telemetry
    run: LayerwiseForward
    weights_bytes: int
    prefetcher: Prefetcher
    staging: tuple[StagingBuffers, ...]
    writes_visible: bool
    read_path: str

    @property
    def is_resident(self) -> bool:
        """Whether every expert is in memory, so that a forward never waits for the host."""
        return all(pool.holds_all for pool in self.pools)

    @property
    def expert_pool_bytes(self) -> int:
        return sum(pool.slots.nbytes for pool in self.pools)

    @property
    def staging_bytes(self) -> int:
        """The most host memory that stood between file and slots at once, prefetch included."""
        return sum(buffers.nbytes for buffers in self.staging)

    def use_prefetch(self, on: bool) -> None:
        """Read ahead from now on, or no more. Mutates: the pools; what was read ahead is given up."""
        self.prefetcher.clear()
        for pool in self.pools:
            pool.prefetcher = self.prefetcher if on else None

    @property
    def num_pool_slots(self) -> int:
        return sum(pool.num_slots for pool in self.pools)

    @property
    def num_pinned_experts(self) -> int:
        return sum(int(pool.pinned.sum()) for pool in self.pools)

    def new_cache(self) -> TargetCache:
        return TargetCache(self.model)

    def forward(self, tokens: mx.array, cache: TargetCache, phase: Phase) -> mx.array:
        """Run the backbone. Shapes: tokens [width] -> hidden states after the final norm [1, width, hidden].

        Mutates: the cache and the pools. Raises: CheckpointError when an expert cannot be read.
        """
        with self.telemetry.forward(phase):
            return self.run(tokens, cache, grouped=phase != "prefill")

    def logits(self, hidden: mx.array) -> mx.array:
        """Shapes: [1, width, hidden] -> [1, width, vocabulary]."""
        if self.model.args.tie_word_embeddings:
            return self.model.model.embed_tokens.as_linear(hidden)
        return self.model.lm_head(hidden)

    def embed(self, tokens: mx.array) -> mx.array:
        """Shapes: tokens [width] -> [1, width, hidden]."""
        return self.model.model.embed_tokens(tokens[None])

    def close(self) -> None:
        """Release the reading threads and the expert files."""
        self.reader.close()
        for pool in self.pools:
            pool.file.close()

"""Bytes: what MLX holds and how much it may keep, what the process occupies."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from dataclasses import dataclass

import mlx.core as mx
import psutil

from worker.measure.backend import on_metal

LEAST_CACHE_BYTES = 64 << 20
"""A small model's buffers would otherwise go back to the system and come again with every layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """MLX's live buffers, their peak in both phases, its reclaimable buffers, and the process's resident set.

    `generation_peak_bytes` is None when nothing ran after the prompt.
    """

    active_bytes: int
    prefill_peak_bytes: int
    generation_peak_bytes: int | None
    cache_bytes: int
    rss_bytes: int

    @property
    def peak_bytes(self) -> int:
        return max(self.prefill_peak_bytes, self.generation_peak_bytes or 0)


class PeakByPhase:
    """MLX's peak of one generation, apart for its prompt and for what follows.

    MLX's peak is a number that allocations raise; reading and resetting it waits for no kernel.
    """

    def __init__(self) -> None:
        self._prefill_bytes: int | None = None
        mx.reset_peak_memory()

    def generation_begins(self) -> None:
        """The prompt is done: what it took is its peak, and the count begins anew."""
        self._prefill_bytes = mx.get_peak_memory()
        mx.reset_peak_memory()

    def read(self) -> MemoryReading:
        """How memory stands now, and the peaks up to now."""
        peak_bytes, prefill_bytes = mx.get_peak_memory(), self._prefill_bytes
        return MemoryReading(
            active_bytes=mx.get_active_memory(),
            prefill_peak_bytes=peak_bytes if prefill_bytes is None else prefill_bytes,
            generation_peak_bytes=None if prefill_bytes is None else peak_bytes,
            cache_bytes=mx.get_cache_memory(),
            rss_bytes=psutil.Process().memory_info().rss,
        )


def cache_limit(asked_bytes: int | None, working_bytes: int) -> int:
    """The most freed bytes that MLX may keep: as asked, else what one generation frees and takes again."""
    return max(working_bytes, LEAST_CACHE_BYTES) if asked_bytes is None else asked_bytes


def wired_limit(holds_bytes: int, recommended_bytes: int | None) -> int | None:
    """The most bytes that MLX may keep wired: what the run holds, at most what the device recommends.

    None without a recommendation: there is no such limit to set.
    """
    return None if recommended_bytes is None else min(holds_bytes, recommended_bytes)


def recommended_working_set_bytes() -> int | None:
    """What an Apple GPU recommends to hold at most; None when this process computes on anything else."""
    if not on_metal():
        return None
    recommended = mx.device_info().get("max_recommended_working_set_size")
    return recommended if isinstance(recommended, int) else None


class MemoryLimits:
    """MLX's limits of one session. They belong to the whole process, so `restore` puts back what was found."""

    def __init__(self) -> None:
        self.cache_bytes: int | None = None
        self.wired_bytes: int | None = None
        self._undo = ExitStack()

    def set_cache(self, limit_bytes: int) -> None:
        self.cache_bytes = limit_bytes
        self._undo.callback(mx.set_cache_limit, mx.set_cache_limit(limit_bytes))

    def set_wired(self, limit_bytes: int | None) -> None:
        """None leaves the limit alone."""
        self.wired_bytes = limit_bytes
        if limit_bytes is not None:
            self._undo.callback(mx.set_wired_limit, mx.set_wired_limit(limit_bytes))

    def restore(self) -> None:
        """Put back what was found. A second call does nothing."""
        self._undo.close()


def settled_active_bytes() -> int:
    """Live bytes after finished generations and reclaimable buffers have been let go."""
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()

"""Bytes: what MLX holds, what the process occupies."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import mlx.core as mx
import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """MLX's live buffers, their peak since the last reset, its reclaimable buffers, and the process's resident set."""

    active_bytes: int
    peak_bytes: int
    cache_bytes: int
    rss_bytes: int


def read_memory() -> MemoryReading:
    return MemoryReading(
        active_bytes=mx.get_active_memory(),
        peak_bytes=mx.get_peak_memory(),
        cache_bytes=mx.get_cache_memory(),
        rss_bytes=psutil.Process().memory_info().rss,
    )


def reset_peak() -> None:
    mx.reset_peak_memory()


def settled_active_bytes() -> int:
    """Live bytes after finished generations and reclaimable buffers have been let go."""
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()

"""Which of MLX's backends this process computes on."""

from __future__ import annotations

import mlx.core as mx


def on_cpu() -> bool:
    """The host's own processor."""
    return mx.default_device() == mx.Device(mx.cpu)


def on_metal() -> bool:
    """One of Apple's GPUs."""
    return mx.metal.is_available() and not on_cpu()


def on_cuda() -> bool:
    """One of NVIDIA's GPUs."""
    return mx.cuda.is_available() and not on_cpu()

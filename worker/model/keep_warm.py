"""Tiny kernels while the host waits for the disk, so that a GPU that clocks down when idle stays awake.

Apple's GPUs slow down after about two idle milliseconds, and a wait for the disk is longer. Elsewhere this only costs.
"""

from __future__ import annotations

import mlx.core as mx


class KeepWarm:
    """Called again and again during a wait, by the thread that runs the model."""

    def __init__(self) -> None:
        self._seed = mx.zeros((64,))
        mx.eval(self._seed)
        self.num_kernels = 0

    def __call__(self) -> None:
        mx.async_eval(self._seed + 1)
        self.num_kernels += 1

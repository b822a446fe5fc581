"""The host's view of an MLX array: its memory, without a copy."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten


def host_view(array: mx.array) -> memoryview:
    """The array's memory, typed and shaped as the array; waits until it is evaluated. Writable: see experts/slots.py."""
    return memoryview(cast("Any", array))


def host_bytes(array: mx.array) -> memoryview:
    """The array's memory as bytes. The array must be contiguous."""
    return host_view(array).cast("B")


def parameter_bytes(module: nn.Module) -> int:
    """Bytes of all arrays of a module."""
    return sum(cast("mx.array", array).nbytes for _, array in tree_flatten(module.parameters()))

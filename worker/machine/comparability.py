"""Which facts two measurements must share before they may be blended into one figure.

Two repeats belong together only if they ran on the same kind of machine, in the same state, with the same software. The
list lives here, beside the code that finds the facts out, and both the node and the head read it: a field that is
forgotten in one of them would let two different machines share a median.
"""

from __future__ import annotations

COMPARABLE_FIELDS: tuple[str, ...] = (
    "hardware_model",
    "chip",
    "cpu_cores",
    "gpu_cores",
    "memory_bytes",
    "os_name",
    "os_version",
    "os_build",
    "mlx_device",
    "mlx_version",
    "mlx_lm_version",
    "mlx_wheel_tag",
    "python_version",
    "wired_limit_bytes",
    "power_mode",
    "nice",
    "omp_num_threads",
)
"""Columns of the `runs` table. One chip name covers several core counts, one wheel name several builds."""

ComparabilityKey = tuple[tuple[str, str | int | None], ...]


def comparability_key(identity: object) -> ComparabilityKey:
    """List the (field, value) pairs that are equal exactly when two machines, in their states, may be blended.

    `identity` has the fields of COMPARABLE_FIELDS: a MachineIdentity on the node, a row of `runs` on the head.

    An unknown value equals another unknown value only: a Mac whose power mode could not be read is not blended with one
    whose mode is known.
    """
    return tuple((name, getattr(identity, name)) for name in COMPARABLE_FIELDS)

"""The MTP head of a checkpoint: from the original `mtp.*` tensors to a quantized head with a recorded convention.

The original stores every norm zero-centred: the multiplier is one plus the stored value. The shift happens here, once, in
float32, and the prepared file says so in its manifest, because a head shifted twice or not at all still runs, and only
its acceptance drops.
"""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from worker.checkpoint.index import read_headers
from worker.checkpoint.layout import MtpLayout
from worker.contract.errors import CheckpointError

MTP_FILE = "mtp.safetensors"
HEAD_BITS, GATE_BITS, GROUP_SIZE = 4, 8, 64
_PREFIX = "mtp."
_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_GATES = ("mlp.gate.weight", "mlp.shared_expert_gate.weight")


def convert_head(source: Path, *, num_experts: int, compute_dtype: mx.Dtype) -> tuple[dict[str, mx.array], MtpLayout]:
    """Read a sidecar of `mtp.*` tensors and return the head's parameters under our names, quantized, norms one-centred.

    Norms stay float32 whatever the compute dtype: one plus a small number loses most of the small number in bfloat16.
    Raises: CheckpointError when the file is truncated or lacks a tensor.
    Source: vLLM, `model_executor/models/qwen3_next_mtp.py` (names and order of the concatenation).
    """
    read_headers([source])
    loaded = mx.load(str(source))
    if not isinstance(loaded, dict):
        raise CheckpointError(f"{source} holds no named tensors", "name the file with the mtp.* tensors")
    tensors = {name.removeprefix(_PREFIX): value for name, value in loaded.items() if name.startswith(_PREFIX)}
    if "fc.weight" not in tensors:
        raise CheckpointError(f"{source} holds no mtp.fc.weight", "name the file with the mtp.* tensors")
    extra_layers = {name.split(".")[1] for name in tensors if name.startswith("layers.")} - {"0"}
    if extra_layers:
        raise CheckpointError(f"{source} has {1 + len(extra_layers)} MTP layers, this build reads one")
    flat = {name.replace("layers.0.", "layer."): value for name, value in tensors.items()}
    _stack_experts(flat, num_experts, source)
    head: dict[str, mx.array] = {}
    for name, value in flat.items():
        if value.ndim == 1:
            head[name] = value.astype(mx.float32) + 1.0
        else:
            head |= _quantized(name, value, compute_dtype)
    mx.eval(head)
    return head, MtpLayout(bits=HEAD_BITS, gate_bits=GATE_BITS, group_size=GROUP_SIZE)


def _stack_experts(flat: dict[str, mx.array], num_experts: int, source: Path) -> None:
    for projection in _PROJECTIONS:
        names = [f"layer.mlp.experts.{expert}.{projection}.weight" for expert in range(num_experts)]
        if missing := next((name for name in names if name not in flat), None):
            original = missing.replace("layer.", "mtp.layers.0.", 1)
            raise CheckpointError(f"{source} lacks {original}", "fetch the file again, or the shard that holds it")
        flat[f"layer.mlp.switch_mlp.{projection}.weight"] = mx.stack([flat.pop(name) for name in names])


def _quantized(name: str, value: mx.array, compute_dtype: mx.Dtype) -> dict[str, mx.array]:
    bits = GATE_BITS if name.endswith(_GATES) else HEAD_BITS
    weight, scales, biases = mx.quantize(value, group_size=GROUP_SIZE, bits=bits)
    stem = name.removesuffix(".weight")
    return {
        f"{stem}.weight": weight,
        f"{stem}.scales": scales.astype(compute_dtype),
        f"{stem}.biases": biases.astype(compute_dtype),
    }

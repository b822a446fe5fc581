"""The head is converted once and rightly: norms shifted one time in float32, experts stacked in order, losses named."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from worker.checkpoint.mtp import convert_head
from worker.checkpoint.resolve import BUNDLED_DIRECTORY
from worker.contract.errors import CheckpointError

SIDECAR = BUNDLED_DIRECTORY / "mtp.safetensors"


def _original() -> dict[str, mx.array]:
    tensors = mx.load(str(SIDECAR))
    assert isinstance(tensors, dict)
    return tensors


def test_every_norm_is_shifted_once_in_float32():
    head, layout = convert_head(SIDECAR, num_experts=64, compute_dtype=mx.bfloat16)
    assert layout.norm_convention == "one_centred"
    original = _original()
    norms = [name for name, value in original.items() if value.ndim == 1]
    assert len(norms) == 7
    for name in norms:
        ours = head[name.removeprefix("mtp.").replace("layers.0.", "layer.")]
        assert ours.dtype == mx.float32
        assert mx.array_equal(ours, original[name].astype(mx.float32) + 1.0), name


def test_experts_are_stacked_in_expert_order():
    head, layout = convert_head(SIDECAR, num_experts=64, compute_dtype=mx.float32)
    original = _original()
    for expert in (0, 9, 63):
        weight, scales, _ = mx.quantize(
            original[f"mtp.layers.0.mlp.experts.{expert}.up_proj.weight"], group_size=64, bits=layout.bits
        )
        assert mx.array_equal(head["layer.mlp.switch_mlp.up_proj.weight"][expert], weight)
        assert mx.array_equal(head["layer.mlp.switch_mlp.up_proj.scales"][expert], scales.astype(mx.float32))


def test_gates_keep_eight_bits():
    head, layout = convert_head(SIDECAR, num_experts=64, compute_dtype=mx.float32)
    assert head["layer.mlp.gate.weight"].shape[1] * 32 // layout.gate_bits == 192
    assert head["fc.weight"].shape[1] * 32 // layout.bits == 384


def test_a_missing_expert_is_named(tmp_path: Path):
    tensors = _original()
    del tensors["mtp.layers.0.mlp.experts.17.gate_proj.weight"]
    mx.save_safetensors(str(tmp_path / "mtp.safetensors"), tensors)
    with pytest.raises(CheckpointError, match=r"lacks mtp\.layers\.0\.mlp\.experts\.17\.gate_proj\.weight"):
        convert_head(tmp_path / "mtp.safetensors", num_experts=64, compute_dtype=mx.float32)


def test_a_file_without_a_head_is_refused(tmp_path: Path):
    mx.save_safetensors(str(tmp_path / "other.safetensors"), {"x": mx.zeros((2, 2))})
    with pytest.raises(CheckpointError, match=r"holds no mtp\.fc\.weight"):
        convert_head(tmp_path / "other.safetensors", num_experts=64, compute_dtype=mx.float32)

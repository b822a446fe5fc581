"""A checkpoint with the layer sizes of Qwen3-Next-80B-A3B and random weights: for measuring the engine, and nothing else.

Its name, its configuration and every report made with it say that it is random: what it emits has no meaning, and its
routing has only the skew it was given. The sizes are the point.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from worker.contract.errors import StorageError

SIZES: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000_000,
    "partial_rotary_factor": 0.25,
    "max_position_embeddings": 262_144,
    "full_attention_interval": 4,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "rope_scaling": None,
}
"""Source: config.json of Qwen/Qwen3-Next-80B-A3B-Instruct."""

GROUP_SIZE, BITS, GATE_BITS = 64, 4, 8
RANDOM_NAME = "random-weights"


def generate(
    out: Path,
    *,
    num_layers: int,
    vocab_size: int,
    router_sigma: float,
    seed: int = 0,
    sizes: dict[str, Any] | None = None,
    tokenizer: Path | None = None,
    on_progress: Callable[[float, str], None] = lambda fraction, what: None,
) -> Path:
    """Write an MLX-format checkpoint, one file per layer, and return its directory.

    Each expert's router row is scaled by a log-normal factor with this sigma, so that some experts are hotter than others.
    `sizes` replaces entries of `SIZES` (tests use small ones). Raises: StorageError when `out` is taken or full.
    """
    if out.exists() and any(out.iterdir()):
        raise StorageError(f"{out} is not empty", "choose another --out, or empty it")
    config = SIZES | (sizes or {}) | {"num_hidden_layers": num_layers, "vocab_size": vocab_size, "weights": RANDOM_NAME}
    overrides: dict[str, Any] = {}
    for layer in range(num_layers):
        for gate in ("gate", "shared_expert_gate"):
            overrides[f"model.layers.{layer}.mlp.{gate}"] = {"group_size": GROUP_SIZE, "bits": GATE_BITS}
    config["quantization"] = {"group_size": GROUP_SIZE, "bits": BITS, "mode": "affine"} | overrides
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    if tokenizer is not None:
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copyfile(tokenizer / name, out / name)
    mx.random.seed(seed)
    rng = np.random.default_rng(seed)
    ends = {"model.norm.weight": mx.ones(config["hidden_size"], dtype=mx.bfloat16)}
    ends |= _linear("model.embed_tokens", vocab_size, config["hidden_size"])
    ends |= _linear("lm_head", vocab_size, config["hidden_size"])
    _save(out / "model-ends.safetensors", ends)
    for layer in range(num_layers):
        on_progress(layer / num_layers, f"layer {layer}")
        tensors = _layer(config, layer, router_sigma, rng)
        _save(out / f"model-{layer:05d}.safetensors", tensors)
    on_progress(1.0, "done")
    return out


def is_random(directory: Path) -> bool:
    """Whether a checkpoint says of itself that its weights are random."""
    return json.loads((directory / "config.json").read_text(encoding="utf-8")).get("weights") == RANDOM_NAME


def _layer(config: dict[str, Any], layer: int, router_sigma: float, rng: np.random.Generator) -> dict[str, mx.array]:
    prefix = f"model.layers.{layer}"
    hidden = config["hidden_size"]
    tensors = {
        f"{prefix}.input_layernorm.weight": mx.ones(hidden, dtype=mx.bfloat16),
        f"{prefix}.post_attention_layernorm.weight": mx.ones(hidden, dtype=mx.bfloat16),
    }
    full = (layer + 1) % config["full_attention_interval"] == 0
    tensors |= _attention(config, f"{prefix}.self_attn") if full else _recurrent(config, f"{prefix}.linear_attn")
    scale = mx.array(rng.lognormal(0.0, router_sigma, (config["num_experts"], 1)).astype(np.float32))
    mlp = f"{prefix}.mlp"
    tensors |= _linear(f"{mlp}.gate", config["num_experts"], hidden, bits=GATE_BITS, scale=scale)
    tensors |= _linear(f"{mlp}.shared_expert_gate", 1, hidden, bits=GATE_BITS)
    shared, routed = config["shared_expert_intermediate_size"], config["moe_intermediate_size"]
    for name, rows, columns in (
        ("gate_proj", shared, hidden),
        ("up_proj", shared, hidden),
        ("down_proj", hidden, shared),
    ):
        tensors |= _linear(f"{mlp}.shared_expert.{name}", rows, columns)
    for name, rows, columns in (
        ("gate_proj", routed, hidden),
        ("up_proj", routed, hidden),
        ("down_proj", hidden, routed),
    ):
        tensors |= _experts(f"{mlp}.switch_mlp.{name}", config["num_experts"], rows, columns, rng)
    return tensors


def _attention(config: dict[str, Any], prefix: str) -> dict[str, mx.array]:
    heads, keys, width = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    hidden = config["hidden_size"]
    tensors = {f"{prefix}.{norm}.weight": mx.ones(width, dtype=mx.bfloat16) for norm in ("q_norm", "k_norm")}
    tensors |= _linear(f"{prefix}.q_proj", 2 * heads * width, hidden)
    tensors |= _linear(f"{prefix}.k_proj", keys * width, hidden)
    tensors |= _linear(f"{prefix}.v_proj", keys * width, hidden)
    return tensors | _linear(f"{prefix}.o_proj", hidden, heads * width)


def _recurrent(config: dict[str, Any], prefix: str) -> dict[str, mx.array]:
    values = config["linear_num_value_heads"]
    key_dim = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    value_dim = values * config["linear_value_head_dim"]
    hidden, kernel = config["hidden_size"], config["linear_conv_kernel_dim"]
    tensors = {
        f"{prefix}.A_log": mx.log(mx.random.uniform(1.0, 16.0, (values,))).astype(mx.bfloat16),
        f"{prefix}.dt_bias": mx.ones(values, dtype=mx.bfloat16),
        f"{prefix}.norm.weight": mx.ones(config["linear_value_head_dim"], dtype=mx.bfloat16),
        f"{prefix}.conv1d.weight": (mx.random.normal((2 * key_dim + value_dim, kernel, 1)) * 0.5).astype(mx.bfloat16),
    }
    tensors |= _linear(f"{prefix}.in_proj_qkvz", 2 * key_dim + 2 * value_dim, hidden)
    tensors |= _linear(f"{prefix}.in_proj_ba", 2 * values, hidden)
    return tensors | _linear(f"{prefix}.out_proj", hidden, value_dim)


def _linear(
    name: str, rows: int, columns: int, *, bits: int = BITS, scale: mx.array | None = None
) -> dict[str, mx.array]:
    """A quantized layer of normal weights with variance 1 / columns; `scale` multiplies rows."""
    weight = mx.random.normal((rows, columns)) * columns**-0.5
    if scale is not None:
        weight = weight * scale
    packed, scales, biases = mx.quantize(weight.astype(mx.bfloat16), group_size=GROUP_SIZE, bits=bits)
    return {f"{name}.weight": packed, f"{name}.scales": scales, f"{name}.biases": biases}


def _experts(name: str, count: int, rows: int, columns: int, rng: np.random.Generator) -> dict[str, mx.array]:
    """Stacked experts of uniform 4-bit values, centred, with variance 1 / columns: drawn packed, because they are many."""
    packed = rng.integers(0, 2**32, (count, rows, columns * BITS // 32), dtype=np.uint32)
    step = (columns * (2 ** (2 * BITS) - 1) / 12) ** -0.5
    shape = (count, rows, columns // GROUP_SIZE)
    scales = mx.full(shape, step, dtype=mx.bfloat16)
    return {
        f"{name}.weight": mx.array(packed),
        f"{name}.scales": scales,
        f"{name}.biases": scales * -((2**BITS - 1) / 2),
    }


def _save(path: Path, tensors: dict[str, mx.array]) -> None:
    try:
        mx.save_safetensors(str(path), tensors, metadata={"format": "mlx"})
    except RuntimeError as error:
        raise StorageError(f"cannot write {path}: {error}", "free some space or choose another --out") from error

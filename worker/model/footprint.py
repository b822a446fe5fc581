"""What a model will take in memory, told from its files before anything is loaded.

    weights + MTP head + slots + working memory

Weights, head and slots are exact. The working memory is an upper estimate of MLX's other live buffers: caches, recurrent
states and activations. It depends on sizes only, so that the same task gets the same slots on every machine. That a run
stays inside is tested on the bundled model (tests/unit/worker/benchmark/test_a_budget_becomes_slots.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mlx_lm.models.qwen3_next import ModelArgs

from worker.checkpoint.index import read_headers
from worker.checkpoint.layout import DTYPE_BYTES, Manifest
from worker.checkpoint.mtp import MTP_FILE
from worker.contract.errors import CheckpointError

TRUNK_FILE, CONFIG_FILE = "model.safetensors", "config.json"
STATE_BYTES = 4
"""Per element of a recurrent state, which is float32 in any compute dtype."""
STATES_BESIDE_THE_VERIFIED = 2
"""Recurrent states alive beside one per verified position: the committed one, and the one being computed."""
MOE_ACTIVATIONS, HIDDEN_ACTIVATIONS = 6, 24
"""Live vectors per routed pair, and per prompt token of a chunk: above what was measured on the bundled model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Units: bytes. `slot_bytes` is one expert in memory."""

    weights_bytes: int
    head_bytes: int
    slot_bytes: int
    working_bytes: int

    @property
    def without_slots_bytes(self) -> int:
        return self.weights_bytes + self.head_bytes + self.working_bytes

    def with_slots_bytes(self, num_slots: int) -> int:
        """Everything, with so many slots over all layers."""
        return self.without_slots_bytes + num_slots * self.slot_bytes


def footprint(
    directory: Path, manifest: Manifest, *, verify_width: int, prefill_chunk_tokens: int, context_tokens: int
) -> Footprint:
    """`context_tokens`: prompt, generated tokens and drafts of the longest generation. Raises: CheckpointError."""
    return Footprint(
        weights_bytes=_tensor_bytes(directory / TRUNK_FILE),
        head_bytes=_tensor_bytes(directory / MTP_FILE),
        slot_bytes=manifest.record.payload_bytes,
        working_bytes=_working_bytes(
            _model_args(directory),
            manifest,
            width=verify_width,
            chunk=min(prefill_chunk_tokens, context_tokens),
            context=context_tokens,
        ),
    )


def _tensor_bytes(file: Path) -> int:
    return sum(entry.nbytes for entry in read_headers([file]).values())


def _model_args(directory: Path) -> ModelArgs:
    path = directory / CONFIG_FILE
    try:
        return ModelArgs.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is no configuration of this model: {error}", "prepare it again") from error


def _working_bytes(args: ModelArgs, manifest: Manifest, *, width: int, chunk: int, context: int) -> int:
    element = DTYPE_BYTES[manifest.compute_dtype]
    num_attention = args.num_hidden_layers // args.full_attention_interval
    num_recurrent = args.num_hidden_layers - num_attention
    value_dim = args.linear_num_value_heads * args.linear_value_head_dim
    channels = 2 * args.linear_num_key_heads * args.linear_key_head_dim + value_dim
    state = num_recurrent * (value_dim * args.linear_key_head_dim + (args.linear_conv_kernel_dim - 1) * channels)
    # Keys and values of the target's attention layers and of the head's one, and the hidden states the head is fed.
    # Twice: growing a cache copies it.
    head_dim = args.head_dim or args.hidden_size // args.num_attention_heads
    position = (num_attention + 1) * 2 * args.num_key_value_heads * head_dim + 2 * args.hidden_size
    pair = args.hidden_size + 2 * args.moe_intermediate_size
    token = (
        MOE_ACTIVATIONS * manifest.experts_per_token * pair
        + HIDDEN_ACTIVATIONS * args.hidden_size
        + 2 * args.num_attention_heads * context
    )
    # In a layer that holds every expert, the routing of all positions stays on the device until the repeat is over.
    routing = len(manifest.moe_layers) * manifest.num_experts * 4
    return (
        (width + STATES_BESIDE_THE_VERIFIED) * state * STATE_BYTES
        + 2 * context * position * element
        + chunk * token * element
        + 2 * width * args.vocab_size * element
        + context * routing
    )

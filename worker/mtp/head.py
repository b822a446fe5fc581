"""The MTP head: one full-attention MoE layer that predicts the token after the next from the target's hidden state.

    e = norm(embed(t[i+1]))    h = norm(H[i])           H[i]: the target's hidden state AFTER its final norm
    x = fc(concat[e, h])                                the embedding half first
    G = norm(layer(x))         logits = lm_head(G)      embedding and lm_head are the target's; G feeds the next draft

Entry j of the head's KV cache is made from (H[j], t[j+1]). Source: vLLM, `model_executor/models/qwen3_next_mtp.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.models.qwen3_next import Model, ModelArgs, Qwen3NextDecoderLayer

from worker.checkpoint.layout import MtpLayout
from worker.checkpoint.mtp import MTP_FILE
from worker.contract.errors import CheckpointError
from worker.measure.host import parameter_bytes
from worker.model.target import Target


class WideRMSNorm(nn.RMSNorm):
    """RMSNorm whose weight stays float32: a multiplier of one plus a small number is not rounded to bfloat16."""

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.rms_norm(x.astype(mx.float32), self.weight, self.eps).astype(x.dtype)


class MtpModule(nn.Module):
    """The head's own parameters; the embedding and the lm_head it uses are the target's."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.pre_fc_norm_embedding = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.fc = nn.Linear(2 * args.hidden_size, args.hidden_size, bias=False)
        self.layer = Qwen3NextDecoderLayer(args, layer_idx=args.full_attention_interval - 1)
        self.norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)

    def __call__(self, hidden: mx.array, embedded: mx.array, cache: KVCache) -> mx.array:
        """Shapes: hidden and embedded [1, n, hidden] -> G [1, n, hidden]. Mutates: the cache."""
        joined = mx.concatenate([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], axis=-1)
        x = self.fc(joined)
        x = self.layer(x, mask=cast("mx.array | None", create_attention_mask(x, cache)), cache=cache)
        return self.norm(x)


class MtpHead:
    """The head with its KV cache for one generation at a time.

    `num_true` entries of the cache come from the target's hidden states; the head's own drafts may follow them until
    they are dropped.
    """

    def __init__(self, module: MtpModule, target: Target) -> None:
        self._module, self._target = module, target
        self.nbytes = parameter_bytes(module)
        self.reset()

    def reset(self) -> None:
        """Start a generation: forget every entry."""
        self._cache = KVCache()
        self.num_true = 0

    def extend(self, hidden: mx.array, next_tokens: mx.array) -> mx.array:
        """Add entries made from true hidden states and return their G.

        Shapes: hidden [1, n, hidden], next_tokens [n] -> [1, n, hidden]. Mutates: the cache; self-fed entries are dropped.
        """
        self._cache.trim(self._cache.offset - self.num_true)
        out = self._module(hidden, self._target.embed(next_tokens), self._cache)
        self.num_true = self._cache.offset
        return out

    def feed_back(self, state: mx.array, token: mx.array) -> mx.array:
        """Add one entry made from the head's own G and draft. Shapes: state [1, 1, hidden], token [1] -> [1, 1, hidden]."""
        return self._module(state, self._target.embed(token), self._cache)

    def logits(self, state: mx.array) -> mx.array:
        return self._target.logits(state)

    def arrays(self) -> list[mx.array]:
        """Every array that the next call reads."""
        return [array for array in (self._cache.keys, self._cache.values) if array is not None]


def load_head(directory: Path, layout: MtpLayout, target: Target) -> MtpHead:
    """Load the prepared head. Raises: CheckpointError when its tensors do not fit the model."""
    model: Model = target.model
    module = MtpModule(model.args)
    weights = mx.load(str(directory / MTP_FILE))
    assert isinstance(weights, dict)

    def quantization(path: str, submodule: nn.Module) -> bool | dict[str, int]:
        if not hasattr(submodule, "to_quantized") or f"{path}.scales" not in weights:
            return False
        bits = layout.gate_bits if path.endswith(("mlp.gate", "shared_expert_gate")) else layout.bits
        return {"group_size": layout.group_size, "bits": bits}

    nn.quantize(module, class_predicate=quantization)
    module.update_modules(_wide_norms(module))
    try:
        module.load_weights(list(weights.items()))
    except ValueError as error:
        raise CheckpointError(
            f"{directory / MTP_FILE} does not fit the model: {str(error).splitlines()[0]}",
            "prepare the checkpoint again",
        ) from error
    module.eval()
    mx.eval(module.parameters())
    return MtpHead(module, target)


def _wide_norms(module: MtpModule) -> dict[str, object]:
    """The tree of replacements that turns every norm of the head into one with a float32 weight."""

    def wide(norm: nn.RMSNorm) -> WideRMSNorm:
        return WideRMSNorm(norm.weight.shape[0], norm.eps)

    layer = module.layer
    return {
        "pre_fc_norm_embedding": wide(module.pre_fc_norm_embedding),
        "pre_fc_norm_hidden": wide(module.pre_fc_norm_hidden),
        "norm": wide(module.norm),
        "layer": {
            "input_layernorm": wide(layer.input_layernorm),
            "post_attention_layernorm": wide(layer.post_attention_layernorm),
            "self_attn": {"q_norm": wide(layer.self_attn.q_norm), "k_norm": wide(layer.self_attn.k_norm)},
        },
    }

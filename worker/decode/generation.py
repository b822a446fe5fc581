"""One generation as a value: the tokens and the boundaries of its clock, the same for both paths.

start ---- prompt forwards ---- first token known ---- (head prefill) ---- decode ... last token known
      '------- ttft_s --------'
      '-------------------- prefill_s -------------------------------' '------- decode_s --------'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from worker.measure.host import host_view

StopReason = Literal["length", "eos"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What one run of one path emitted and when. Units: seconds."""

    token_ids: tuple[int, ...]
    stop_reason: StopReason
    ttft_s: float
    prefill_s: float
    decode_s: float

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens after the first, per second from the first to the last; None when there was one only."""
        return (len(self.token_ids) - 1) / self.decode_s if len(self.token_ids) > 1 and self.decode_s > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What both paths are asked for. `stop_ids` is empty when generation does not stop at an end-of-sequence token."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    stop_ids: frozenset[int]
    prefill_chunk_tokens: int


def read_ids(tokens: mx.array) -> list[int]:
    """The ids on the host; waits until they are known. Shapes: [n]."""
    return [int(token) for token in host_view(tokens)]


def truncated(token_ids: list[int], request: Request) -> tuple[list[int], StopReason | None]:
    """Cut after the first stop token or at the limit; the reason is None while generation may go on."""
    for index, token in enumerate(token_ids[: request.max_tokens]):
        if token in request.stop_ids:
            return token_ids[: index + 1], "eos"
    if len(token_ids) >= request.max_tokens:
        return token_ids[: request.max_tokens], "length"
    return token_ids, None

"""The target's caches: keys and values that can be trimmed, recurrent states that are kept per position.

The recurrent state (convolution window and gated-delta matrix) cannot be trimmed. A verify forward therefore records
the state after every position, and committing the accepted prefix is picking one of them. The reference that this must
equal is snapshot, restore and replay (tests/unit/worker/mtp/test_rollback.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache
from mlx_lm.models.qwen3_next import Model


@dataclass(frozen=True, slots=True)
class Positions:
    """What a recorded forward left: enough to tell the recurrent state after each of its positions.

    Shapes: `padded` [1, kernel - 1 + width, channels], the convolution's input with the window it began with; the window
    after n positions is a slice of it, cut when it is picked. `states[n]` [1, heads, value dim, key dim].
    """

    padded: tuple[mx.array, ...]
    states: tuple[mx.array, ...]
    reach: int

    def __len__(self) -> int:
        return len(self.states)

    def after(self, num_positions: int) -> tuple[mx.array, mx.array]:
        """The convolution window and the gated-delta matrix after this many positions."""
        forward_width = len(self.states) // len(self.padded)
        which, offset = divmod(num_positions - 1, forward_width)
        padded = self.padded[which]
        # A view, not a copy: it costs no kernel, and the next forward copies it into its own input anyway.
        return padded[:, offset + 1 : offset + 1 + self.reach], self.states[num_positions - 1]

    def followed_by(self, other: Positions) -> Positions:
        """The positions of two forwards of the same width, one after the other."""
        return Positions(self.padded + other.padded, self.states + other.states, self.reach)


class RecurrentCache(ArraysCache):
    """The recurrent state of one layer; while `recording`, also the state after each position of the last forward."""

    def __init__(self) -> None:
        super().__init__(size=2)
        self.recording = False
        self.positions: Positions | None = None

    def record(self, positions: Positions) -> None:
        """Keep the states after each position; the last one becomes the current state. Mutates: self."""
        self.positions = positions
        self[0], self[1] = positions.after(len(positions))

    def pick(self, num_positions: int) -> None:
        """Make the state after `num_positions` positions of the recorded forward current. Mutates: self."""
        assert self.positions is not None
        if num_positions < len(self.positions):
            self[0], self[1] = self.positions.after(num_positions)
        self.positions = None


LayerCache = RecurrentCache | KVCache
LayerState = tuple[mx.array | None, mx.array | None] | int
"""References to a recurrent layer's arrays, or the length of a KV layer."""


def snapshot_layer(layer: LayerCache) -> LayerState:
    return (layer[0], layer[1]) if isinstance(layer, RecurrentCache) else layer.offset


def restore_layer(layer: LayerCache, state: LayerState) -> None:
    """Go back to a state of this layer's cache; the state stays valid. Mutates: the layer."""
    if isinstance(layer, RecurrentCache):
        assert isinstance(state, tuple)
        layer[0], layer[1] = state
        layer.positions = None
    else:
        assert isinstance(state, int)
        layer.trim(layer.offset - state)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """References to every layer's state: arrays are immutable, so nothing is copied. KV layers need their length only."""

    layers: tuple[LayerState, ...]


class TargetCache:
    """The caches of all layers, in layer order. Owns the state of one generation."""

    def __init__(self, model: Model) -> None:
        self.layers: list[LayerCache] = [RecurrentCache() if layer.is_linear else KVCache() for layer in model.layers]

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values are held."""
        return next(layer.offset for layer in self.layers if isinstance(layer, KVCache))

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def set_recording(self, recording: bool) -> None:
        """Say whether the next forwards record the recurrent state after every position."""
        for layer in self.layers:
            if isinstance(layer, RecurrentCache):
                layer.recording = recording

    def snapshot(self) -> Snapshot:
        return Snapshot(tuple(snapshot_layer(layer) for layer in self.layers))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this cache. It stays valid: it may be restored again. Mutates: self."""
        for layer, state in zip(self.layers, snapshot.layers, strict=True):
            restore_layer(layer, state)

    def commit(self, num_positions: int, *, forward_width: int) -> None:
        """Keep the first `num_positions` of the last recorded forward of `forward_width`. Mutates: self."""
        for layer in self.layers:
            if isinstance(layer, RecurrentCache):
                layer.pick(num_positions)
            else:
                layer.trim(forward_width - num_positions)

    def arrays(self) -> list[mx.array]:
        """Every array that the next forward reads."""
        found: list[mx.array] = []
        for layer in self.layers:
            pair = (layer[0], layer[1]) if isinstance(layer, RecurrentCache) else (layer.keys, layer.values)
            found += [array for array in pair if array is not None]
        return found

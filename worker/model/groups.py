"""How many layers to run before the host looks at what they routed to: a pure policy.

Reading the routed ids after every layer costs a fixed wait each time. Running several layers on the device's slot map and
reading their ids together saves all but one of these waits, and wastes work when an expert was missing: the layers from the
first miss on are run again. Adding layer n to a group that begins at layer a

    saves   one read
    wastes  a layer's cost, with the chance that any layer from a to n misses
            and, with the first layer that is added, a layer's cost with the chance that layer a itself misses: by itself
            it would have been read before its experts ran, and not run twice

so a group grows while what the next layer saves is more than what it wastes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEWEST_WEIGHT = 0.1
"""Of the newest observation in a running average of costs."""
NEWEST_GAIN_WEIGHT = 0.05
"""Of the newest group's gain: one that was disturbed must not decide."""
WORST_GAIN = -0.5
"""A group that took longer still was disturbed."""
MIN_GAIN = -0.05
"""Groups that lose more than this are given up."""
RETRY_FORWARDS = 64
"""For so many forwards."""
UNSEEN_GROUPS = 3
"""The first groups compile kernels: nothing is learnt from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCosts:
    """What the decision weighs. Units: seconds."""

    read_s: float
    layer_s: float


@dataclass(slots=True)
class GroupTimes:
    """What groups cost and bring here, learnt from every layer and every group that ran. Units: seconds.

    The decision above weighs averages; whether it was right is seen afterwards. When groups took longer than their layers one
    by one would have, none are made for a while, and then they are tried again.
    """

    read_s: float
    """Of one host read: what a layer by itself costs more than in a group, until both were seen."""
    learns: bool = True
    """Whether to go by what was seen; otherwise a read and a layer cost `read_s` each."""
    alone_s: float | None = None
    """A layer by itself, that missed nothing."""
    layer_s: float | None = None
    """A layer in a group, its share of the read left out."""
    gain: float = 0.0
    """By what share groups were lately faster than their layers would have been by themselves."""
    num_refused: int = 0
    num_groups: int = 0

    @property
    def costs(self) -> GroupCosts:
        layer_s = self.read_s if self.layer_s is None or not self.learns else self.layer_s
        if self.alone_s is None or self.layer_s is None or not self.learns:
            return GroupCosts(read_s=self.read_s, layer_s=layer_s)
        return GroupCosts(read_s=max(0.0, self.alone_s - layer_s), layer_s=layer_s)

    def allow(self) -> bool:
        """Whether the next forward may make groups. Mutates: the count of refusals."""
        if self.gain >= MIN_GAIN or not self.learns:
            return True
        self.num_refused += 1
        if self.num_refused > RETRY_FORWARDS:
            self.num_refused, self.gain = 0, 0.0
            return True
        return False

    def layer_ran_alone(self, seconds: float) -> None:
        """Learn from a layer that was run by itself and missed nothing."""
        self.alone_s = _blend(self.alone_s, seconds)

    def group_ran(self, num_layers: int, num_right: int, seconds: float) -> None:
        """Learn from a group, of which the first `num_right` layers stood."""
        self.num_groups += 1
        if self.num_groups <= UNSEEN_GROUPS:
            return
        self.layer_s = _blend(self.layer_s, max(0.0, seconds - self.read_s) / num_layers)
        if self.alone_s:
            won = (num_right * self.alone_s - seconds) / (num_layers * self.alone_s)
            self.gain += NEWEST_GAIN_WEIGHT * (max(won, WORST_GAIN) - self.gain)


def _blend(known: float | None, newest: float) -> float:
    return newest if known is None else known + NEWEST_WEIGHT * (newest - known)


def group_end(start: int, miss_probabilities: Sequence[float], costs: GroupCosts, *, limit: int | None = None) -> int:
    """The end (exclusive) of the group that begins at layer `start`; `start + 1` means: read this layer's ids by itself.

    `miss_probabilities[layer]` is the chance that the layer routes to an absent expert in this forward; layers that hold
    all their experts have 0. `limit` caps the length.
    """
    last = len(miss_probabilities) if limit is None else min(len(miss_probabilities), start + limit)
    none_missed = 1.0 - miss_probabilities[start]
    extra = miss_probabilities[start]
    end = start + 1
    while end < last:
        none_missed *= 1.0 - miss_probabilities[end]
        if (1.0 - none_missed + extra) * costs.layer_s >= costs.read_s:
            break
        extra = 0.0
        end += 1
    return end

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCosts:
    """What the decision weighs. Units: seconds."""

    read_s: float
    layer_s: float


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

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

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

NEWEST_WEIGHT = 0.1
"""Of the newest observation in a running average of costs."""
UNSEEN_FORWARDS = 3
"""The first forwards of each way compile kernels: nothing is learnt from them, nor from so many groups."""
NUM_COMPARED = 7
"""Of each way: the medians of so many forwards are compared, so that a disturbed one does not decide."""
FORWARDS_PER_TRIAL = 32
"""The slower way is tried again in one of so many forwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCosts:
    """What the decision weighs. Units: seconds."""

    read_s: float
    layer_s: float


class GroupTimes:
    """What groups cost and bring here, learnt from every forward that was free to make them. Units: seconds.

    The decision above weighs averages of single layers and groups. Whether it was right is seen on whole forwards: they run
    with groups or without, whichever was lately faster at their width, and now and then the other way.
    """

    def __init__(self, read_s: float, *, learns: bool = True) -> None:
        """`read_s`: what a layer by itself costs more than in a group, at least. Without `learns` a read and a layer cost
        `read_s` each, always, and groups are always allowed.
        """
        self._read_s, self._learns = read_s, learns
        self._alone_s: float | None = None
        self._layer_s: float | None = None
        self._num_groups = 0
        self._rivals: dict[int, _Rivals] = {}

    @property
    def costs(self) -> GroupCosts:
        layer_s = self._read_s if self._layer_s is None or not self._learns else self._layer_s
        if self._alone_s is None or self._layer_s is None or not self._learns:
            return GroupCosts(read_s=self._read_s, layer_s=layer_s)
        # Never less than was measured at the start: groups that look dear once would never be made, nor learnt from, again.
        return GroupCosts(read_s=max(self._read_s, self._alone_s - layer_s), layer_s=layer_s)

    def allow(self, width: int) -> bool:
        """Whether the next forward of this width may make groups. Mutates: the count of forwards."""
        return not self._learns or self._rivals.setdefault(width, _Rivals()).choose()

    def forward_ran(self, width: int, seconds: float, *, grouped: bool) -> None:
        """Learn from a whole forward. Mutates: self."""
        self._rivals.setdefault(width, _Rivals()).ran(seconds, grouped=grouped)

    def layer_ran_alone(self, seconds: float) -> None:
        """Learn from a layer that was run by itself and missed nothing, in a forward without groups so far.

        After a group that failed, the queue is empty and a layer takes longer than it would have otherwise.
        """
        self._alone_s = _blend(self._alone_s, seconds)

    def group_ran(self, num_layers: int, seconds: float) -> None:
        """Learn from a group."""
        self._num_groups += 1
        if self._num_groups > UNSEEN_FORWARDS:
            self._layer_s = _blend(self._layer_s, max(0.0, seconds - self._read_s) / num_layers)


class _Rivals:
    """Two ways of running a forward of one width, with groups (True) and without; the lately faster one is chosen."""

    def __init__(self) -> None:
        self._seconds = {way: deque[float](maxlen=NUM_COMPARED) for way in (True, False)}
        self._num_seen = {True: 0, False: 0}
        self._num_chosen = 0

    def choose(self) -> bool:
        fewest = min(len(seconds) for seconds in self._seconds.values())
        self._num_chosen += 1
        if fewest < NUM_COMPARED:
            return self._num_chosen % 2 == 1
        grouped = median(self._seconds[True]) <= median(self._seconds[False])
        return grouped != (self._num_chosen % FORWARDS_PER_TRIAL == 0)

    def ran(self, seconds: float, *, grouped: bool) -> None:
        self._num_seen[grouped] += 1
        if self._num_seen[grouped] > UNSEEN_FORWARDS:
            self._seconds[grouped].append(seconds)


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

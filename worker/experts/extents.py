"""How the records that one layer demands are split into read operations: a pure policy.

Few large records are cut into pieces, so that every thread reads at once; neighbours on disk are read together; small
records are handed over by the batch, because handing over costs more than reading them.

    records demanded -> operations (one thread each) -> extents (one read call each) -> segments (part of one record)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_OPERATION_BYTES = 256 << 10
"""Less than this costs more to hand over to a thread than to read."""
MIN_PIECE_BYTES = 512 << 10
"""A record is not cut smaller: beyond this, more pieces cost more turns of the interpreter than they save in reading."""
MAX_OPERATION_BYTES = 8 << 20
"""More than this per thread gains nothing and makes the last one late."""
PIECE_ALIGNMENT = 16384
"""Pieces begin at multiples of this within a record, as records do within a file."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes from `start` to `end` of one record's payload; `index` is its place among the demanded ones."""

    index: int
    start: int
    end: int


Extent = tuple[Segment, ...]
"""Parts of neighbouring records, adjacent on disk but for the gaps between records."""
Operation = tuple[Extent, ...]


def plan_reads(experts: Sequence[int], payload_bytes: int, num_threads: int) -> list[Operation]:
    """Split the reading of these distinct, ascending experts into operations for so many threads.

    Every byte of every record is in exactly one segment.
    """
    share = -(-len(experts) * payload_bytes // num_threads)
    target = min(max(share, MIN_OPERATION_BYTES), MAX_OPERATION_BYTES)
    if payload_bytes > target:
        pieces = max(1, payload_bytes // max(target, MIN_PIECE_BYTES))
        step = -(-payload_bytes // (pieces * PIECE_ALIGNMENT)) * PIECE_ALIGNMENT
        return [
            ((Segment(index, start, min(start + step, payload_bytes)),),)
            for index in range(len(experts))
            for start in range(0, payload_bytes, step)
        ]
    together = target // payload_bytes
    return [
        _as_extents(range(first, min(first + together, len(experts))), experts, payload_bytes)
        for first in range(0, len(experts), together)
    ]


def _as_extents(indices: range, experts: Sequence[int], payload_bytes: int) -> Operation:
    """Whole records of one operation, neighbours joined."""
    extents: list[list[Segment]] = []
    for index in indices:
        segment = Segment(index, 0, payload_bytes)
        if extents and experts[index] == experts[index - 1] + 1:
            extents[-1].append(segment)
        else:
            extents.append([segment])
    return tuple(map(tuple, extents))

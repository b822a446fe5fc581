"""Host buffers of one record each, in a fixed number: where records wait that are not in a slot yet."""

from __future__ import annotations

import mmap
from collections.abc import Callable

from worker.experts.file import Buffers


class StagingBuffer:
    """Room for one record. Page-aligned; the way of a read ahead, and of every read where slots cannot be read into."""

    __slots__ = ("memory",)

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory

    def buffers(self) -> Buffers:
        return [self.memory]


class StagingBuffers:
    """The buffers, made when first needed. Owns their memory."""

    def __init__(self, limit: int, payload_bytes: int, allocate: Callable[[int], memoryview] | None = None) -> None:
        """`allocate` makes memory of another kind than the system's, such as pinned one."""
        self.limit, self._payload_bytes = limit, payload_bytes
        self._allocate = allocate or _pages
        self._free: list[StagingBuffer] = []
        self._num_made = 0

    @property
    def nbytes(self) -> int:
        """What was ever needed at once; never more than `limit` records."""
        return self._num_made * self._payload_bytes

    @property
    def num_held(self) -> int:
        """Buffers that were acquired and not released."""
        return self._num_made - len(self._free)

    @property
    def has_free(self) -> bool:
        return bool(self._free) or self._num_made < self.limit

    def acquire(self) -> StagingBuffer:
        """Needs a free one."""
        if self._free:
            return self._free.pop()
        assert self._num_made < self.limit
        self._num_made += 1
        return StagingBuffer(self._allocate(self._payload_bytes))

    def release(self, buffer: StagingBuffer) -> None:
        self._free.append(buffer)


def _pages(nbytes: int) -> memoryview:
    return memoryview(mmap.mmap(-1, nbytes))[:nbytes]

"""Expert records on disk: positioned reads straight into the memory they are for, short reads and errors named.

Reads can go past the system's page cache, so that experts are held once, in the pool, and a read is a read. macOS takes any
buffer then; Linux wants aligned ones, so each thread reads into a buffer of its own there and copies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import threading
from pathlib import Path

from worker.checkpoint.layout import RecordLayout
from worker.contract.errors import CheckpointError, TaskError

Buffers = list[memoryview]

_F_NOCACHE = 48
"""From macOS's fcntl.h: do not keep what is read through this descriptor."""
_MAX_VECTORS = 1024
"""IOV_MAX of Linux and macOS: a read takes no more buffers at once."""
_DIRECT_ALIGNMENT = 4096
"""Offset, length and address of a read past the page cache on Linux: a multiple of any device's block size in use."""


class ExpertFile:
    """One layer's records. Owns a file descriptor; safe to read from several threads."""

    def __init__(self, path: Path, layer: int, layout: RecordLayout, *, bypass_page_cache: bool = False) -> None:
        """Raises: CheckpointError when it cannot be opened; TaskError when its file system has no way past the cache."""
        self.path, self.layer = path, layer
        self._layout = layout
        self._aligned = bypass_page_cache and sys.platform == "linux"
        self._bounce = threading.local()
        self.gap = memoryview(bytearray(layout.record_bytes - layout.payload_bytes))
        """Takes what lies between two records that are read together. Nobody reads it."""
        try:
            self._fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if self._aligned else 0))
            if bypass_page_cache and sys.platform == "darwin":
                fcntl.fcntl(self._fd, _F_NOCACHE, 1)
        except OSError as error:
            if bypass_page_cache and path.exists():
                raise TaskError(
                    f"page_cache is 'bypass', but {path} cannot be read past it: {error.strerror}",
                    "set page_cache to 'use', or keep the checkpoint on another file system",
                ) from error
            raise CheckpointError(f"cannot open {path}: {error.strerror}", "prepare the checkpoint again") from error

    @property
    def num_records(self) -> int:
        """As many as the file holds whole."""
        return os.fstat(self._fd).st_size // self._layout.record_bytes

    @property
    def record_bytes(self) -> int:
        return self._layout.record_bytes

    @property
    def payload_bytes(self) -> int:
        return self._layout.payload_bytes

    def read_at(self, expert: int, start: int, buffers: Buffers) -> int:
        """Fill the buffers with what begins `start` bytes into an expert's record and return the number of bytes.

        Mutates: the buffers. Raises: CheckpointError naming layer, expert and file for a short read or an I/O error.
        """
        offset = expert * self._layout.record_bytes + start
        wanted = sum(buffer.nbytes for buffer in buffers)
        if self._aligned:
            self._read_aligned(offset, wanted, buffers)
        else:
            self._fill(offset, wanted, buffers)
        return wanted

    def read(self, expert: int) -> bytes:
        """The record's payload as it is on disk now. Raises: CheckpointError."""
        payload = bytearray(self._layout.payload_bytes)
        self.read_at(expert, 0, [memoryview(payload)])
        return bytes(payload)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _fill(self, offset: int, wanted: int, buffers: Buffers) -> None:
        done = 0
        while done < wanted:
            expert, within = divmod(offset + done, self._layout.record_bytes)
            try:
                count = os.preadv(self._fd, _after(buffers, done)[:_MAX_VECTORS], offset + done)
            except OSError as error:
                raise CheckpointError(
                    f"reading layer {self.layer} expert {expert} of {self.path} failed: {error.strerror}",
                    "check the disk, then prepare the checkpoint again",
                ) from error
            if count == 0:
                raise CheckpointError(
                    f"{self.path} is truncated: layer {self.layer} expert {expert} has {within} of "
                    f"{self._layout.payload_bytes} bytes",
                    "prepare the checkpoint again",
                )
            done += count

    def _read_aligned(self, offset: int, wanted: int, buffers: Buffers) -> None:
        """Read the aligned window around what is wanted, and copy. Records are aligned, so a file ends where a window may."""
        skipped = offset % _DIRECT_ALIGNMENT
        window = -(-(skipped + wanted) // _DIRECT_ALIGNMENT) * _DIRECT_ALIGNMENT
        bounce = self._bounce_buffer(window)[:window]
        self._fill(offset - skipped, window, [bounce])
        at = skipped
        for buffer in buffers:
            buffer[:] = bounce[at : at + buffer.nbytes]
            at += buffer.nbytes

    def _bounce_buffer(self, nbytes: int) -> memoryview:
        held: memoryview | None = getattr(self._bounce, "buffer", None)
        if held is None or held.nbytes < nbytes:
            held = self._bounce.buffer = memoryview(mmap.mmap(-1, nbytes))
        return held


def _after(buffers: Buffers, done: int) -> Buffers:
    """The part of the buffers that is still to be filled."""
    return buffers if done == 0 else window(buffers, done, sum(buffer.nbytes for buffer in buffers))


def window(buffers: Buffers, start: int, end: int) -> Buffers:
    """The bytes from `start` to `end` of buffers that are taken as one after another."""
    found: Buffers = []
    at = 0
    for buffer in buffers:
        first, last = max(start - at, 0), min(end - at, buffer.nbytes)
        if first < last:
            found.append(buffer[first:last])
        at += buffer.nbytes
    return found

"""Expert records on disk: positioned reads straight into the memory they are for, short reads and errors named."""

from __future__ import annotations

import os
from pathlib import Path

from worker.checkpoint.layout import RecordLayout
from worker.contract.errors import CheckpointError

Buffers = list[memoryview]


class ExpertFile:
    """One layer's records. Owns a file descriptor; safe to read from several threads."""

    def __init__(self, path: Path, layer: int, layout: RecordLayout) -> None:
        self.path, self.layer = path, layer
        self._layout = layout
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise CheckpointError(f"cannot open {path}: {error.strerror}", "prepare the checkpoint again") from error

    @property
    def record_bytes(self) -> int:
        return self._layout.record_bytes

    @property
    def payload_bytes(self) -> int:
        return self._layout.payload_bytes

    def read_into(self, expert: int, buffers: Buffers) -> int:
        """Fill the buffers with the record's parts, in order, and return the number of bytes.

        Mutates: the buffers. Raises: CheckpointError naming layer, expert and file for a short read or an I/O error.
        """
        offset = expert * self._layout.record_bytes
        wanted = self._layout.payload_bytes
        done = 0
        while done < wanted:
            try:
                count = os.preadv(self._fd, _after(buffers, done), offset + done)
            except OSError as error:
                raise CheckpointError(
                    f"reading layer {self.layer} expert {expert} of {self.path} failed: {error.strerror}",
                    "check the disk, then prepare the checkpoint again",
                ) from error
            if count == 0:
                raise CheckpointError(
                    f"{self.path} is truncated: layer {self.layer} expert {expert} has {done} of {wanted} bytes",
                    "prepare the checkpoint again",
                )
            done += count
        return done

    def read(self, expert: int) -> bytes:
        """The record's payload as it is on disk now. Raises: CheckpointError."""
        payload = bytearray(self._layout.payload_bytes)
        self.read_into(expert, [memoryview(payload)])
        return bytes(payload)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _after(buffers: Buffers, done: int) -> Buffers:
    """The part of the buffers that is still to be filled."""
    if done == 0:
        return buffers
    rest: Buffers = []
    for buffer in buffers:
        if done >= buffer.nbytes:
            done -= buffer.nbytes
        else:
            rest.append(buffer[done:])
            done = 0
    return rest

"""The memory of one layer's resident experts: one array per tensor, a slot per row, written in place by the reader.

Writing into the memory of an evaluated array is not a promise of MLX's interface, so it is tried at start-up on the
running backend. Three ways lead into a slot:

    direct   the read itself ends in the slot (unified memory: Apple's GPUs, the CPU)
    copied   read into a pinned buffer, carried over by the GPU's copy engine (NVIDIA)
    staged   read into a buffer, uploaded through MLX (where a kernel does not see what was written)
"""

from __future__ import annotations

from typing import Literal

import mlx.core as mx
import numpy as np

from worker.checkpoint.layout import RecordLayout
from worker.checkpoint.prepare import MLX_DTYPES
from worker.experts.cuda import CudaCopier
from worker.experts.file import ExpertFile
from worker.measure.host import host_bytes

Way = Literal["direct", "copied", "staged"]


def writes_are_visible() -> bool:
    """Write into evaluated arrays of each width through their buffers and ask a kernel what it sees."""
    for dtype, code in ((mx.uint32, np.uint32), (mx.float32, np.float32), (mx.bfloat16, np.uint16)):
        array = mx.zeros((4, 64), dtype=dtype)
        mx.eval(array)
        before = (array + 0).sum().item()
        pattern = np.full(64, 0x3F80 if code is np.uint16 else 1, dtype=code)
        try:
            host_bytes(array)[2 * pattern.nbytes : 3 * pattern.nbytes] = pattern.tobytes()
        except (TypeError, ValueError, BufferError):
            return False
        seen = mx.take(array, mx.array([2]), axis=0).astype(mx.float32).sum().item()
        others = mx.take(array, mx.array([0, 1, 3]), axis=0).astype(mx.float32).sum().item()
        if before != 0 or seen != 64 or others != 0:
            return False
    return True


class SlotArrays:
    """The tensors of `num_slots` experts. Shapes: `arrays[part]` is [num_slots, *part.shape], contiguous."""

    def __init__(
        self, layout: RecordLayout, num_slots: int, *, way: Way = "direct", copier: CudaCopier | None = None
    ) -> None:
        """`copier` is needed by the way `copied` and shared by all layers."""
        self.num_slots = num_slots
        self._way, self._copier = way, copier
        self._layout = layout
        self.arrays = {
            part.name: mx.zeros((num_slots, *part.shape), dtype=MLX_DTYPES[part.dtype]) for part in layout.parts
        }
        mx.eval(list(self.arrays.values()))
        self._views: list[tuple[memoryview, int]] = []
        if way != "staged":
            self._views = [(host_bytes(self.arrays[part.name]), part.nbytes) for part in layout.parts]
        self._addresses = [np.frombuffer(view, dtype=np.uint8).ctypes.data for view, _ in self._views]
        self._staging: dict[int, bytearray] = {}
        self.staging_bytes = 0
        """The most that was staged at once; pinned buffers are the copier's."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def receive(self, slot: int, file: ExpertFile, expert: int) -> int:
        """Read an expert's record into this slot and return its bytes; the staged way needs `upload` afterwards.

        Called by several threads at once, for different slots. Mutates: the slot. Raises: CheckpointError.
        """
        if self._way == "direct":
            return file.read_into(expert, [view[slot * n : (slot + 1) * n] for view, n in self._views])
        if self._way == "staged":
            return file.read_into(expert, [memoryview(self._staging.setdefault(slot, bytearray(file.payload_bytes)))])
        assert self._copier is not None
        done = file.read_into(expert, [self._copier.buffer()])
        parts = zip(self._layout.parts, self._addresses, strict=True)
        self._copier.copy([(part.offset, base + slot * part.nbytes, part.nbytes) for part, base in parts])
        return done

    def upload(self) -> None:
        """Move staged records into their slots. Mutates: the arrays, by assignment; does nothing on the direct path."""
        if not self._staging:
            return
        self.staging_bytes = max(self.staging_bytes, sum(map(len, self._staging.values())))
        slots = mx.array(list(self._staging))
        staged = np.stack([np.frombuffer(buffer, dtype=np.uint8) for buffer in self._staging.values()])
        for part in self._layout.parts:
            rows = mx.array(staged[:, part.offset : part.offset + part.nbytes]).view(MLX_DTYPES[part.dtype])
            self.arrays[part.name][slots] = rows.reshape(len(self._staging), *part.shape)
        mx.eval(list(self.arrays.values()))
        self._staging = {}

    def discard(self) -> None:
        """Forget staged records that did not arrive whole."""
        self._staging = {}

    def payload(self, slot: int) -> bytes:
        """The slot's bytes, as a record's payload, read back through MLX: what a kernel would see."""
        rows = [mx.contiguous(self.arrays[part.name][slot]) for part in self._layout.parts]
        mx.eval(rows)
        return b"".join(host_bytes(row).tobytes() for row in rows)

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
from numpy.typing import NDArray

from worker.checkpoint.layout import RecordLayout
from worker.checkpoint.prepare import MLX_DTYPES
from worker.experts.cuda import CudaCopier, address_of
from worker.experts.file import Buffers
from worker.experts.reader import Destination
from worker.experts.staging import StagingBuffer, StagingBuffers
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
        self,
        layout: RecordLayout,
        num_slots: int,
        *,
        way: Way = "direct",
        copier: CudaCopier | None = None,
        staging: StagingBuffers | None = None,
    ) -> None:
        """`copier` is needed by the way `copied`; `staging`, shared by all layers, by every way but `direct`."""
        self.num_slots = num_slots
        self._way, self._copier, self._staging = way, copier, staging
        self._layout = layout
        self.arrays = {
            part.name: mx.zeros((num_slots, *part.shape), dtype=MLX_DTYPES[part.dtype]) for part in layout.parts
        }
        mx.eval(list(self.arrays.values()))
        self._views: list[tuple[memoryview, int]] = []
        if way != "staged":
            self._views = [(host_bytes(self.arrays[part.name]), part.nbytes) for part in layout.parts]
        self._addresses = [address_of(view) for view, _ in self._views]
        self._arriving: dict[int, StagingBuffer] = {}
        self._map: mx.array | None = None
        self._map_view = memoryview(bytearray())
        self._map_pinned: memoryview | None = None

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def max_at_once(self) -> int | None:
        """How many records may be on their way between `destination` and `settle`; None: any number."""
        return self._staging.limit if self._staging else None

    def destination(self, slot: int) -> Destination:
        """Where a record must be read to for this slot. What was read is in the slots after `settle`."""
        if self._way == "direct":
            return _InPlace([view[slot * n : (slot + 1) * n] for view, n in self._views])
        assert self._staging is not None
        buffer = self._arriving[slot] = self._staging.acquire()
        return buffer

    def place(self, slot: int, record: memoryview) -> None:
        """Copy a record that was read elsewhere into a slot. On the way `copied` it must lie in pinned memory."""
        if self._way == "direct":
            for (view, n), part in zip(self._views, self._layout.parts, strict=True):
                view[slot * n : (slot + 1) * n] = record[part.offset : part.offset + n]
        else:
            self._bring({slot: record})

    def map_experts(self, slot_of: NDArray[np.int32]) -> mx.array:
        """The slot of every expert for the device; an absent expert has slot 0. Shapes: [num_experts].

        Where records are read in place or carried, the map is one array that is written in place like a slot: whoever asks
        for a new map must know that nothing un-evaluated reads the old one.
        """
        slots = np.maximum(slot_of, 0).astype(np.uint32)
        if self._way == "staged":
            return mx.array(slots)
        if self._map is None:
            self._map = mx.array(slots)
            mx.eval(self._map)
            self._map_view = host_bytes(self._map)
            if self._way == "copied" and self._copier is not None:
                self._map_pinned = self._copier.allocate(slots.nbytes)
        elif self._map_pinned is None:
            self._map_view[:] = slots.tobytes()
        else:
            assert self._copier is not None
            self._map_pinned[:] = slots.tobytes()
            self._copier.copy([(address_of(self._map_pinned), address_of(self._map_view), slots.nbytes)])
        return self._map

    def settle(self) -> None:
        """Bring what was read into the slots, where reading did not, and free the buffers. Mutates: the arrays."""
        if self._arriving:
            self._bring({slot: buffer.memory for slot, buffer in self._arriving.items()})
        self.discard()

    def discard(self) -> None:
        """Forget records that did not arrive whole."""
        for buffer in self._arriving.values():
            assert self._staging is not None
            self._staging.release(buffer)
        self._arriving = {}

    def payload(self, slot: int) -> bytes:
        """The slot's bytes, as a record's payload, read back through MLX: what a kernel would see."""
        rows = [mx.contiguous(self.arrays[part.name][slot]) for part in self._layout.parts]
        mx.eval(rows)
        return b"".join(host_bytes(row).tobytes() for row in rows)

    def _bring(self, records: dict[int, memoryview]) -> None:
        """Move whole records into their slots."""
        if self._way == "staged":
            self._upload(records)
            return
        assert self._copier is not None
        self._copier.copy(
            (source + part.offset, base + slot * part.nbytes, part.nbytes)
            for slot, source in ((slot, address_of(record)) for slot, record in records.items())
            for part, base in zip(self._layout.parts, self._addresses, strict=True)
        )

    def _upload(self, records: dict[int, memoryview]) -> None:
        slots = mx.array(list(records))
        staged = np.stack([np.frombuffer(record, dtype=np.uint8) for record in records.values()])
        for part in self._layout.parts:
            rows = mx.array(staged[:, part.offset : part.offset + part.nbytes]).view(MLX_DTYPES[part.dtype])
            self.arrays[part.name][slots] = rows.reshape(len(records), *part.shape)
        mx.eval(list(self.arrays.values()))


class _InPlace:
    """The slot's own memory."""

    __slots__ = ("_views",)

    def __init__(self, views: Buffers) -> None:
        self._views = views

    def buffers(self) -> Buffers:
        return self._views

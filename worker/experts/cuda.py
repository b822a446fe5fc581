"""Records into slots by the copy engine, on NVIDIA GPUs.

There a slot array is managed memory that lives on the GPU: a host write into it moves whole pages to the host and the next
kernel moves them back, by page faults. So a record is read into a pinned buffer and the GPU's copy engine carries it over.
Apple's GPUs share the host's memory and need nothing of this.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import threading

_HOST_TO_DEVICE = 1
_NON_BLOCKING = 1
_LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")


class CudaCopier:
    """Pinned buffers and streams, one of each per thread. Owns them until the process ends."""

    def __init__(self, payload_bytes: int) -> None:
        """Raises: OSError when the CUDA runtime cannot be loaded."""
        self._runtime = _load_runtime()
        self._payload_bytes = payload_bytes
        self._lanes = threading.local()
        self._guard = threading.Lock()
        self.pinned_bytes = 0

    def buffer(self) -> memoryview:
        """This thread's pinned buffer, as large as a record's payload."""
        return self._lane()[0]

    def copy(self, parts: list[tuple[int, int, int]]) -> None:
        """Copy from this thread's buffer and wait until all is there. Parts: (offset, address on the device, bytes)."""
        buffer, base, stream = self._lane()
        del buffer
        for offset, address, nbytes in parts:
            self._check(
                self._runtime.cudaMemcpyAsync(
                    ctypes.c_void_p(address),
                    ctypes.c_void_p(base + offset),
                    ctypes.c_size_t(nbytes),
                    _HOST_TO_DEVICE,
                    stream,
                )
            )
        self._check(self._runtime.cudaStreamSynchronize(stream))

    def _lane(self) -> tuple[memoryview, int, ctypes.c_void_p]:
        lane = getattr(self._lanes, "lane", None)
        if lane is None:
            lane = self._lanes.lane = self._new_lane()
        return lane

    def _new_lane(self) -> tuple[memoryview, int, ctypes.c_void_p]:
        pointer, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._runtime.cudaMallocHost(ctypes.byref(pointer), ctypes.c_size_t(self._payload_bytes)))
        self._check(self._runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), _NON_BLOCKING))
        assert pointer.value is not None
        buffer = (ctypes.c_char * self._payload_bytes).from_address(pointer.value)
        with self._guard:
            self.pinned_bytes += self._payload_bytes
        return memoryview(buffer).cast("B"), pointer.value, stream

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"the CUDA runtime answered with error {code}")


def _load_runtime() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"none of {', '.join(_LIBRARIES)} could be loaded")

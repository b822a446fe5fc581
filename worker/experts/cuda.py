"""Records into slots by the copy engine, on NVIDIA GPUs.

There a slot array is managed memory that lives on the GPU: a host write into it moves whole pages to the host and the next
kernel moves them back, by page faults. So a record is read into a pinned buffer and the GPU's copy engine carries it over.
Apple's GPUs share the host's memory and need nothing of this.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable

import numpy as np

_HOST_TO_DEVICE = 1
_NON_BLOCKING = 1
_LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")


class CudaCopier:
    """Pinned memory, and a stream per thread. Owns both until the process ends."""

    def __init__(self) -> None:
        """Raises: OSError when the CUDA runtime cannot be loaded."""
        self._runtime = _load_runtime()
        self._runtime.cudaMemcpyAsync.argtypes = (
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_void_p,
        )
        self._streams = threading.local()

    def allocate(self, nbytes: int) -> memoryview:
        """Pinned host memory."""
        pointer = ctypes.c_void_p()
        self._check(self._runtime.cudaMallocHost(ctypes.byref(pointer), ctypes.c_size_t(nbytes)))
        assert pointer.value is not None
        return memoryview((ctypes.c_char * nbytes).from_address(pointer.value)).cast("B")

    def copy(self, parts: Iterable[tuple[int, int, int]]) -> None:
        """Copy from pinned memory and wait until all is there.

        Parts: (address of pinned memory, address on the device, bytes). One thread does it for all records at once: the
        calls are many and short, and several threads would spend their time handing the interpreter's lock around.
        """
        stream, copy = self._stream(), self._runtime.cudaMemcpyAsync
        for source, address, nbytes in parts:
            self._check(copy(address, source, nbytes, _HOST_TO_DEVICE, stream))
        self._check(self._runtime.cudaStreamSynchronize(stream))

    def _stream(self) -> ctypes.c_void_p:
        stream = getattr(self._streams, "stream", None)
        if stream is None:
            stream = self._streams.stream = ctypes.c_void_p()
            self._check(self._runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), _NON_BLOCKING))
        return stream

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"the CUDA runtime answered with error {code}")


def address_of(memory: memoryview) -> int:
    """Where writable memory begins."""
    return int(np.frombuffer(memory, dtype=np.uint8).ctypes.data)


def _load_runtime() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"none of {', '.join(_LIBRARIES)} could be loaded")

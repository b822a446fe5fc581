"""Safetensors files as an index of tensors: read the headers, not the data, and refuse what is truncated."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from worker.contract.errors import CheckpointError

DTYPE_BYTES = {"U32": 4, "F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I32": 4}
_MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of one file. `start` is its first byte in the file; `dtype` is the format's name (BF16, U32, ...)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    nbytes: int


def read_headers(files: Iterable[Path]) -> dict[str, TensorEntry]:
    """Index every tensor of the files. Raises: CheckpointError when a file is missing, truncated or no safetensors."""
    index: dict[str, TensorEntry] = {}
    for file in files:
        for entry in _read_header(file):
            index[entry.name] = entry
    return index


def _read_header(file: Path) -> list[TensorEntry]:
    try:
        size = file.stat().st_size
        with file.open("rb") as handle:
            prefix = handle.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
            if length > min(size - 8, _MAX_HEADER_BYTES):
                raise CheckpointError(
                    f"{file} is truncated: {size} bytes do not hold its header", "fetch the file again"
                )
            header = json.loads(handle.read(length))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file} does not exist", "name a directory that holds the checkpoint") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is not a safetensors file: its header is not JSON", "fetch it again") from error
    data_start = 8 + length
    entries = []
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        shape = tuple(tensor["shape"])
        expected = prod(shape) * DTYPE_BYTES.get(tensor["dtype"], 0)
        if data_start + end > size:
            raise CheckpointError(
                f"{file} is truncated: {name} ends at byte {data_start + end}, the file has {size}",
                "fetch the file again",
            )
        if expected and end - begin != expected:
            raise CheckpointError(
                f"{file}: {name} has {end - begin} bytes, its shape needs {expected}", "fetch it again"
            )
        entries.append(
            TensorEntry(
                name=name, dtype=tensor["dtype"], shape=shape, file=file, start=data_start + begin, nbytes=end - begin
            )
        )
    return entries

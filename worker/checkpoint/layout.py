"""The prepared layout: a directory whose experts are one contiguous, page-aligned record each.

    manifest.json         written last: its presence means the directory is whole
    config.json           the model's configuration, as the source has it
    model.safetensors     the trunk: every tensor but the routed experts, in the compute dtype
    experts/layer_NNN.bin one record per expert, in expert order
    mtp.safetensors       the MTP head, quantized, norms shifted to one-centred (absent when the source has none)
    tokenizer*            as the source has them

The manifest is plain data with a version. Reading it needs neither MLX nor the weights, so the head can read it too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from worker.contract.errors import CheckpointError, TaskError

LAYOUT_VERSION = 1
RECORD_ALIGNMENT = 16384
"""Bytes: the page size of Apple Silicon, a multiple of every other page and sector size in use."""
MANIFEST_FILE = "manifest.json"

NumpyDtype = Literal["uint32", "float32", "bfloat16", "float16"]
DTYPE_BYTES: dict[NumpyDtype, int] = {"uint32": 4, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPart:
    """One tensor of an expert inside its record. Units: `offset` and `nbytes` in bytes from the record's start."""

    name: str
    dtype: NumpyDtype
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLayout:
    """Where each tensor of an expert lies in a record. The parts are contiguous; the tail is zero padding."""

    parts: tuple[RecordPart, ...]

    @property
    def payload_bytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def record_bytes(self) -> int:
        return -(-self.payload_bytes // RECORD_ALIGNMENT) * RECORD_ALIGNMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertQuantization:
    """How the routed experts are quantized, in the terms of `mx.quantize`."""

    bits: int
    group_size: int
    mode: str = "affine"

    def __str__(self) -> str:
        return f"{self.bits}-bit/{self.group_size}" + ("" if self.mode == "affine" else f" {self.mode}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLayout:
    """The prepared MTP head: how it is quantized and what its norms are centred on."""

    bits: int
    gate_bits: int
    group_size: int
    norm_convention: Literal["one_centred"] = "one_centred"

    def __str__(self) -> str:
        return f"{self.bits}-bit/{self.group_size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that a run must know before it loads a byte of weights.

    `record_digests[layer][expert]` is the BLAKE2b-128 of the record's payload; `files` maps every other file to its size
    and SHA-256. `source_digest` names the content that was prepared, whatever the compute dtype.
    """

    name: str
    source_digest: str
    source_files: dict[str, str]
    compute_dtype: NumpyDtype
    model_type: str
    num_layers: int
    moe_layers: tuple[int, ...]
    num_experts: int
    experts_per_token: int
    max_context_tokens: int
    expert_quantization: ExpertQuantization
    record: RecordLayout
    mtp: MtpLayout | None
    files: dict[str, tuple[int, str]]
    record_digests: dict[int, tuple[str, ...]]
    layout_version: int = LAYOUT_VERSION

    @property
    def expert_bytes(self) -> int:
        """Bytes of all expert records together."""
        return len(self.moe_layers) * self.num_experts * self.record.record_bytes

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


def expert_file(directory: Path, layer: int) -> Path:
    return directory / "experts" / f"layer_{layer:03d}.bin"


def is_prepared(directory: Path) -> bool:
    return (directory / MANIFEST_FILE).is_file()


def read_manifest(directory: Path) -> Manifest:
    """Raises: CheckpointError when the manifest is absent, of another layout version, or not readable."""
    path = directory / MANIFEST_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist: {directory} is not a prepared checkpoint", _PREPARE) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON", _PREPARE) from error
    version = data.get("layout_version")
    if version != LAYOUT_VERSION:
        raise CheckpointError(f"{path} has layout version {version}, this build reads {LAYOUT_VERSION}", _PREPARE)
    try:
        return _manifest(data)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is not a manifest: {error!r}", _PREPARE) from error


_PREPARE = "make it with: worker prepare SOURCE --out DIR"


def _manifest(data: dict[str, Any]) -> Manifest:
    parts = tuple(RecordPart(**(part | {"shape": tuple(part["shape"])})) for part in data["record"]["parts"])
    mtp = data["mtp"]
    nested = {
        "moe_layers": tuple(data["moe_layers"]),
        "expert_quantization": ExpertQuantization(**data["expert_quantization"]),
        "record": RecordLayout(parts=parts),
        "mtp": MtpLayout(**mtp) if mtp else None,
        "files": {name: (int(size), str(digest)) for name, (size, digest) in data["files"].items()},
        "record_digests": {int(layer): tuple(digests) for layer, digests in data["record_digests"].items()},
    }
    return Manifest(**(data | nested))


def pool_floor(*, verify_width: int, experts_per_token: int) -> int:
    """The fewest slots of a layer that can hold every expert one verify forward may route to."""
    return verify_width * experts_per_token


def check_slots(slots: int, *, verify_width: int, experts_per_token: int, num_experts: int) -> None:
    """Raises: TaskError when the pool is below the floor or above the number of experts."""
    floor = min(pool_floor(verify_width=verify_width, experts_per_token=experts_per_token), num_experts)
    if slots < floor:
        raise TaskError(
            f"slots_per_layer is {slots}, below the floor of {floor} "
            f"(verify_width {verify_width} x {experts_per_token} experts per token)",
            f"set slots_per_layer to {floor} or more, or a smaller verify_width",
        )
    if slots > num_experts:
        raise TaskError(
            f"slots_per_layer is {slots}, the checkpoint has {num_experts} experts per layer",
            f"set slots_per_layer to {num_experts} or fewer",
        )

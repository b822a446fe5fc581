"""A small layer of experts on disk whose every byte tells which expert it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from worker.checkpoint.layout import RecordLayout, RecordPart
from worker.experts.counters import Telemetry
from worker.experts.eviction import policy
from worker.experts.file import ExpertFile
from worker.experts.pool import LayerPool
from worker.experts.reader import DemandReader
from worker.experts.slots import SlotArrays

LAYOUT = RecordLayout(
    parts=(
        RecordPart(name="up_proj.weight", dtype="uint32", shape=(4, 8), offset=0, nbytes=128),
        RecordPart(name="up_proj.scales", dtype="float32", shape=(4, 2), offset=128, nbytes=32),
        RecordPart(name="up_proj.biases", dtype="bfloat16", shape=(4, 2), offset=160, nbytes=16),
    )
)


def payload(expert: int) -> bytes:
    return bytes([expert]) * LAYOUT.payload_bytes


@pytest.fixture
def expert_path(tmp_path: Path) -> Path:
    records = np.zeros((32, LAYOUT.record_bytes), dtype=np.uint8)
    records[:, : LAYOUT.payload_bytes] = np.arange(32, dtype=np.uint8)[:, None]
    path = tmp_path / "layer_000.bin"
    path.write_bytes(records.tobytes())
    return path


@pytest.fixture
def make_pool(expert_path: Path) -> Callable[..., LayerPool]:
    def make(num_slots: int, *, direct: bool = True, threads: int = 3, path: Path = expert_path) -> LayerPool:
        return LayerPool(
            layer=0,
            num_experts=32,
            slots=SlotArrays(LAYOUT, num_slots, direct=direct),
            file=ExpertFile(path, 0, LAYOUT),
            reader=DemandReader(threads),
            policy=policy("lru"),
            telemetry=Telemetry(),
        )

    return make

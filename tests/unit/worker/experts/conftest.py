"""A small layer of experts on disk whose every byte tells which expert it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import CODE, PROSE
from worker.checkpoint.layout import RecordLayout, RecordPart
from worker.checkpoint.resolve import Prepared
from worker.experts.counters import Telemetry
from worker.experts.eviction import policy
from worker.experts.file import ExpertFile
from worker.experts.pool import LayerPool
from worker.experts.reader import Reader
from worker.experts.slots import SlotArrays, Way
from worker.experts.staging import StagingBuffers

from .traces import Trace

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
    def make(
        num_slots: int, *, way: Way = "direct", threads: int = 3, path: Path = expert_path, eviction: str = "lru"
    ) -> LayerPool:
        return LayerPool(
            layer=0,
            num_experts=32,
            slots=SlotArrays(
                LAYOUT,
                num_slots,
                way=way,
                staging=None if way == "direct" else StagingBuffers(2, LAYOUT.payload_bytes),
            ),
            file=ExpertFile(path, 0, LAYOUT),
            reader=Reader(threads),
            policy=policy(eviction),
            telemetry=Telemetry(),
        )

    return make


@pytest.fixture(scope="session")
def recorded_traces(demo: Prepared, tokenizer) -> list[Trace]:
    """What the bundled model routes to: per text, path and layer the distinct experts of each generation forward."""
    from worker.decode.generation import Request
    from worker.decode.greedy import greedy
    from worker.model.build import EngineSettings, build_target
    from worker.mtp.generate import Speculation, speculate
    from worker.mtp.head import load_head

    settings = EngineSettings(slots_per_layer=64, eviction="lru", reader_threads=1, read_path="auto")
    target = build_target(demo.directory, demo.manifest, settings)
    assert demo.manifest.mtp is not None
    head = load_head(demo.directory, demo.manifest.mtp, target)
    traces: list[Trace] = []
    for text in (CODE, PROSE):
        request = Request(
            prompt_ids=tuple(tokenizer.encode(text)), max_tokens=64, stop_ids=frozenset(), prefill_chunk_tokens=64
        )
        for path in ("greedy", "speculative"):
            target.telemetry.reset(recording=True)
            if path == "greedy":
                greedy(target, request)
            else:
                speculate(target, head, request, Speculation(verify_width=3, verify_mode="batched", rollback="capture"))
            routings = target.telemetry.take()[1]
            traces += [
                [np.unique(r.experts) for r in routings if r.layer == pool.layer and r.phase != "prefill"]
                for pool in target.pools
            ]
    target.close()
    return traces

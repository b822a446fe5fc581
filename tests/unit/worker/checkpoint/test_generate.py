"""A generated checkpoint is one that mlx-lm loads, that prepares, and on which the engine computes what mlx-lm computes."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from worker.benchmark.anchor import load_plain
from worker.benchmark.engine import engine_arm, interleave, plain_arm, width_costs, zipf_ids
from worker.checkpoint.generate import SIZES, generate, is_random
from worker.checkpoint.prepare import prepare
from worker.checkpoint.resolve import BUNDLED_DIRECTORY, open_stamps
from worker.checkpoint.source import read_source
from worker.contract.errors import StorageError
from worker.model.build import EngineSettings, build_target

SMALL = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "head_dim": 64,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated") / "random"
    return generate(out, num_layers=4, vocab_size=256, router_sigma=0.5, sizes=SMALL)


def test_one_expert_of_the_real_sizes_has_the_real_bytes():
    weights = 3 * SIZES["hidden_size"] * SIZES["moe_intermediate_size"]
    assert weights * 4 // 8 + weights // 64 * 4 == 1_769_472


def test_it_says_that_it_is_random(generated: Path):
    assert is_random(generated)
    assert not is_random(BUNDLED_DIRECTORY)


def test_the_same_seed_gives_the_same_bytes(generated: Path, tmp_path: Path):
    again = generate(tmp_path / "again", num_layers=4, vocab_size=256, router_sigma=0.5, sizes=SMALL)
    other = generate(tmp_path / "other", num_layers=4, vocab_size=256, router_sigma=0.5, sizes=SMALL, seed=1)
    digests = [read_source(path).digest(open_stamps(tmp_path))[0] for path in (generated, again, other)]
    assert digests[0] == digests[1] != digests[2]


def test_a_directory_with_something_in_it_is_not_overwritten(generated: Path):
    with pytest.raises(StorageError, match="is not empty"):
        generate(generated, num_layers=1, vocab_size=256, router_sigma=0.0, sizes=SMALL)


def test_every_arm_chooses_the_ids_that_plain_mlx_lm_chooses(generated: Path, tmp_path: Path):
    out = tmp_path / "prepared"
    manifest = prepare(read_source(generated), out, compute_dtype="float32", stamps=open_stamps(tmp_path))
    plain = plain_arm("plain", load_plain(generated, mx.float32))
    arms = [plain]
    for slots, limit in ((32, None), (12, 1), (28, 99)):
        settings = EngineSettings(
            slots_per_layer=slots,
            eviction="lru",
            reader_threads=2,
            read_path="auto",
            group_limit=limit,
            read_cost_s=1.0,
        )
        arms.append(engine_arm(f"{slots}", build_target(out, manifest, settings)))
    summaries = interleave(arms, zipf_ids(256, 20, 0), [zipf_ids(256, 16, seed) for seed in (1, 2)])
    assert [summary.same_ids for summary in summaries] == [True] * 4
    assert [summary.num_tokens for summary in summaries] == [32] * 4
    streamed = summaries[2].counters
    assert streamed is not None
    assert streamed.num_disk_loads > 0
    assert streamed.num_routed == 32 * 4 * 4
    costs = width_costs(plain, arms[1], zipf_ids(256, 20, 0), zipf_ids(256, 64, 3), widths=(1, 3), rounds=1)
    assert [width for width, *_ in costs] == [1, 3]


def test_zipf_ids_are_skewed_and_repeatable():
    ids = zipf_ids(1000, 5000, seed=3)
    assert ids == zipf_ids(1000, 5000, seed=3)
    counts = sorted((ids.count(token) for token in set(ids)), reverse=True)
    assert counts[0] > 20 * counts[len(counts) // 2]

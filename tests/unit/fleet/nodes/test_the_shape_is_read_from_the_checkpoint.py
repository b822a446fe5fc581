"""The head knows a checkpoint by its config.json, and a checkpoint that cannot be right is refused before any run."""

from __future__ import annotations

import json

import pytest

from fleet.errors import UsageError
from fleet.nodes.shape import ModelShape, read_shape
from worker.contract.task import CheckpointRef

CONFIG = {"num_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 128}


def test_the_bundled_checkpoint_has_a_shape():
    shape = read_shape(CheckpointRef(source="demo"))
    assert 0 < shape.experts_per_token < shape.num_experts


def test_the_numbers_are_those_of_the_file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert read_shape(CheckpointRef(source=str(tmp_path))) == ModelShape(
        num_experts=8, experts_per_token=2, context_tokens=128
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({**CONFIG, "num_experts": 0}, "num_experts is 0"),
        ({"hidden_size": 4}, "num_experts is None"),
        ([], "not the configuration"),
    ],
)
def test_a_foreign_config_is_refused(tmp_path, config, expected):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"config\.json") as caught:
        read_shape(CheckpointRef(source=str(tmp_path)))
    assert expected in caught.value.message


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UsageError, match="there is no directory"):
        read_shape(CheckpointRef(source=str(tmp_path / "none")))
    with pytest.raises(UsageError, match=r"config\.json: cannot be read"):
        read_shape(CheckpointRef(source=str(tmp_path)))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(UsageError, match="there is no file"):
        read_shape(CheckpointRef(source=str(tmp_path), mtp=str(tmp_path / "mtp.safetensors")))

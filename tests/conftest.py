"""Fixtures shared by all tests: the bundled model, prepared once, and the plain mlx-lm model to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.checkpoint.resolve import BUNDLED_DIRECTORY, Prepared, open_stamps, resolve
from worker.contract.task import CheckpointRef, ReadPath

PROSE = "Describe how a hash table works.\n\nA hash table stores pairs of keys and values. "
CODE = '''def median(values):
    """Return the median of a list of numbers.

    >>> median([3, 1, 2])
    2
    """
    ordered = sorted(values)
'''


@pytest.fixture(scope="session")
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def demo(cache_directory: Path) -> Prepared:
    """The bundled checkpoint, prepared for float32."""
    stamps = open_stamps(cache_directory)
    return resolve(CheckpointRef(source="demo"), cache=cache_directory, compute_dtype="float32", stamps=stamps)


@pytest.fixture(scope="session")
def plain_model():
    """The bundled checkpoint loaded by mlx-lm alone, all experts in memory, computing in float32."""
    import mlx.core as mx
    from mlx_lm.utils import load_model

    model, _ = load_model(BUNDLED_DIRECTORY)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model


@pytest.fixture(scope="session")
def tokenizer():
    from mlx_lm.utils import load_tokenizer

    return load_tokenizer(BUNDLED_DIRECTORY)


@pytest.fixture
def make_target(demo: Prepared) -> Iterator[Callable]:
    """Build targets on the bundled checkpoint; they are closed at the end."""
    from worker.model.build import EngineSettings, build_target

    built = []

    def make(slots: int | tuple[int, ...] = 64, *, read_path: ReadPath = "auto", reader_threads: int = 4, **more: Any):
        settings = EngineSettings(
            slots_per_layer=slots, eviction="lru", reader_threads=reader_threads, read_path=read_path, **more
        )
        built.append(build_target(demo.directory, demo.manifest, settings))
        return built[-1]

    yield make
    for target in built:
        target.close()


@pytest.fixture
def make_head(demo: Prepared) -> Callable:
    from worker.mtp.head import load_head

    layout = demo.manifest.mtp
    assert layout is not None
    return lambda target: load_head(demo.directory, layout, target)

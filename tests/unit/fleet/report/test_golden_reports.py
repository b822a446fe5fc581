"""Each situation renders to its golden files; `python -m tests.golden.update` writes them again after a meant change."""

from __future__ import annotations

import json as plain_json
from typing import Any

import pytest

from fleet.report import json, markdown
from tests.golden.situations import GOLDEN, SITUATIONS


@pytest.mark.parametrize("name", sorted(SITUATIONS))
def test_markdown_is_as_recorded(name: str) -> None:
    assert markdown.render(SITUATIONS[name]().report()) == (GOLDEN / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(SITUATIONS))
def test_json_is_as_recorded_to_the_key_order(name: str) -> None:
    rendered = plain_json.loads(json.render(SITUATIONS[name]().report()))
    recorded = plain_json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert_alike(rendered, recorded, name)


def assert_alike(found: Any, expected: Any, where: str) -> None:
    """Equal in every key, in their order, and in every value; numbers to the last digits that platforms share."""
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key, value in expected.items():
            assert_alike(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            assert_alike(found[i], value, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-12), where
    else:
        assert found == expected, where
        assert type(found) is type(expected), where


def test_every_golden_file_belongs_to_a_situation() -> None:
    names = {path.stem for suffix in ("md", "json") for path in GOLDEN.glob(f"*.{suffix}")}
    assert names == set(SITUATIONS)

"""Whatever stands in a study file, its prompts and its conditions: it loads, or one line says what is wrong, exit code 2."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cluster.admission import targets_of
from fleet.errors import UsageError
from fleet.nodes.node import Node, NodeName
from fleet.study.load import load_study
from worker.contract.task import Task

VALID: dict[str, Any] = {
    "name": "tiny",
    "description": "all there is",
    "require": ["name = a", "tag != loud"],
    "machines": "each",
    "checkpoint": {"source": "demo", "mtp": "~/m.safetensors", "digest": "abc"},
    "prompts": {"file": "prompts.jsonl", "ids": ["a"], "categories": ["code"]},
    "engine": {"compute_dtype": "float32", "reader_threads": 2, "draft_confidence": 0.5},
    "matrix": {"verify_width": [2, 3], "slots_per_layer": ["all", 16], "eviction": ["lru", "lfu"]},
    "protocol": {"max_tokens": 8, "repeats": 1, "order": "blocks", "stop_at_eos": False},
    "gates": {"ac_power": True, "user_idle_s": 600.0},
}
PROMPT = {"id": "a", "category": "code", "text": "def f():", "chat": False}

ODD_TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "\x00",
            "a\x00b",
            "\n",
            "a\nb",
            "\u2028",
            "\x85",
            "~",
            "~nobody-here/x",
            "/",
            "../..",
            "a" * 5000,
            "\U0001f40d",
        ]
    ),
    st.sampled_from(
        ["each", "any", "lru", "LRU", "auto", "blocks", "demo", "all", "memory_gb >= 1e999", "ssd_gb >= ٣"]
    ),
    st.text(max_size=12),
)
NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1, 2**31, 2**63 - 1, 2**63, 10**30, 16**5000]),
    st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1e308]),
    st.booleans(),
)
SCALARS = st.one_of(NUMBERS, ODD_TEXTS)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    SCALARS.map(lambda value: [value, value]),
    st.dictionaries(ODD_TEXTS, SCALARS, max_size=2),
    st.just([[]]),
    st.just([{}]),
)


def places(tree: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in tree.items():
        found.append((*above, key))
        if isinstance(value, dict):
            found += places(value, (*above, key))
    return found


@st.composite
def mutated(draw: st.DrawFn, valid: dict[str, Any]) -> dict[str, Any]:
    """A valid tree with one to three places changed, removed, or joined by a key that nobody knows."""
    tree = copy.deepcopy(valid)
    for place in draw(st.lists(st.sampled_from(places(valid)), min_size=1, max_size=3)):
        table: Any = tree
        for key in place[:-1]:
            table = table.get(key) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            continue
        match draw(st.sampled_from(["change", "change", "change", "remove", "add"])):
            case "change":
                table[place[-1]] = draw(VALUES)
            case "remove":
                table.pop(place[-1], None)
            case _:
                table[draw(st.one_of(st.just(f"{place[-1]}s"), ODD_TEXTS))] = draw(VALUES)
    return tree


def toml(value: Any) -> str:
    """A value as TOML; tables are written inline, and strings by their code points."""
    match value:
        case bool():
            text = str(value).lower()
        case int():
            text = hex(value) if value > 10**999 else str(value)  # more digits than Python prints
        case str():
            text = '"' + "".join(f"\\U{ord(letter):08x}" for letter in value) + '"'
        case list():
            text = f"[{', '.join(map(toml, value))}]"
        case dict():
            text = f"{{{', '.join(f'{toml(key)} = {toml(entry)}' for key, entry in value.items())}}}"
        case _:
            text = str(value)  # a float: nan and inf are spelt alike
    return text


def prompt_line(tree: dict[str, Any]) -> str:
    try:
        return json.dumps(tree, ensure_ascii=False)
    except ValueError:  # a whole number of more digits than Python prints
        return '{"id": ' + "9" * 5000 + "}"


def document(tree: dict[str, Any]) -> str:
    return "".join(f"{toml(key)} = {toml(value)}\n" for key, value in tree.items())


HALF_A_LETTER = '{"id": "a", "category": "code", "text": "\\ud800"}'
PROMPT_LINES = st.one_of(
    st.just(json.dumps(PROMPT)),
    mutated(PROMPT).map(prompt_line),
    st.sampled_from([HALF_A_LETTER, "[" * 100_000, "9" * 5000, "nul", "NaN", "\ufeff{}", "{}", "[1]"]),
    st.text(max_size=20),
)


def refusal(error: UsageError) -> str:
    assert error.exit_code == 2
    assert "\n" not in f"{error.message}{error.hint}"
    assert f"{error.message}{error.hint}".isprintable()
    return error.message


def answer(path: Path) -> str | None:
    """Why a study is refused, or None for one that loads and survives the ledger. Anything else is raised."""
    try:
        study = load_study(path)
        targets_of(study, [Node(name=NodeName("a"))], {})
    except UsageError as error:
        return refusal(error)
    kept = json.loads(study.to_json())
    assert [task.pop("task_id") for task in kept["tasks"]] == [Task.from_dict(task).id for task in kept["tasks"]]
    return None


@settings(max_examples=500, deadline=None)
@given(mutated(VALID))
def test_a_changed_study_file_is_read_or_refused_in_one_line(tmp_path_factory, tree):
    folder = tmp_path_factory.mktemp("study")
    (folder / "prompts.jsonl").write_text(json.dumps(PROMPT))
    (folder / "study.toml").write_text(document(tree))
    answer(folder / "study.toml")


@settings(max_examples=300, deadline=None)
@given(st.lists(PROMPT_LINES, max_size=4), st.binary(max_size=4), st.booleans())
def test_prompts_of_anything_are_read_or_refused_in_one_line(tmp_path_factory, lines, raw, missing):
    folder = tmp_path_factory.mktemp("prompts")
    (folder / "study.toml").write_text(document(VALID))
    if not missing:
        (folder / "prompts.jsonl").write_bytes("\n".join(lines).encode() + raw)
    told = answer(folder / "study.toml")
    assert told is None or "prompts" in told
    assert not (missing and told is None)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30), st.binary(max_size=6), st.integers(0, 600))
def test_a_study_file_of_any_bytes_is_refused_in_one_line(tmp_path_factory, text, raw, cut):
    folder = tmp_path_factory.mktemp("bytes")
    whole = document(VALID).encode()
    (folder / "prompts.jsonl").write_text(json.dumps(PROMPT))
    (folder / "study.toml").write_bytes(whole[:cut] + text.encode() + raw + whole[cut:])
    answer(folder / "study.toml")


def test_the_study_that_is_changed_here_is_a_good_one(tmp_path):
    """Otherwise every change of it would be refused for another reason."""
    (tmp_path / "prompts.jsonl").write_text(json.dumps(PROMPT) + "\n")
    (tmp_path / "study.toml").write_text(document(VALID))
    assert answer(tmp_path / "study.toml") is None


def test_a_line_separator_inside_a_prompt_does_not_cut_it(tmp_path):
    (tmp_path / "prompts.jsonl").write_text(prompt_line({**PROMPT, "text": "one\u2028two"}) + "\r\n\n")
    (tmp_path / "study.toml").write_text(document(VALID))
    assert load_study(tmp_path / "study.toml").tasks[0].prompts[0].text == "one\u2028two"

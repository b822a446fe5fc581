"""Every mistake in a study file is one line that names the file, the key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import UsageError
from fleet.study.load import load_study
from worker.contract.task import Protocol

MINIMAL = """
name = "tiny"
[checkpoint]
source = "demo"
[prompts]
file = "prompts.jsonl"
"""
PROMPTS = '{"id": "a", "category": "code", "text": "def f():", "chat": false}\n{"id": "b", "category": "chat", "text": "Hi"}\n'


@pytest.fixture
def write(tmp_path: Path):
    (tmp_path / "prompts.jsonl").write_text(PROMPTS)

    def writer(text: str) -> Path:
        path = tmp_path / "study.toml"
        path.write_text(text)
        return path

    return writer


def test_what_is_not_named_keeps_the_defaults(write):
    study = load_study(write(MINIMAL))
    (task,) = study.tasks
    assert task.protocol == Protocol()
    assert [prompt.id for prompt in task.prompts] == ["a", "b"]
    assert (task.prompts[0].chat, task.prompts[1].chat) == (False, True)


def test_every_named_setting_arrives_in_the_tasks(write):
    study = load_study(
        write(
            MINIMAL
            + """
            ids = ["a"]
            [engine]
            compute_dtype = "float32"
            prefill_chunk_tokens = 32
            reader_threads = 2
            read_path = "staged"
            verify_records = "never"
            [matrix]
            verify_width = [2, 3]
            slots_per_layer = ["all", 16]
            [protocol]
            max_tokens = 8
            repeats = 1
            order = "blocks"
            pin_hot_experts = 2
            stop_at_eos = false
            """
        )
    )
    assert [(task.verify_width, task.slots_per_layer) for task in study.tasks] == [
        (2, None),
        (2, 16),
        (3, None),
        (3, 16),
    ]
    task = study.tasks[0]
    assert (task.compute_dtype, task.prefill_chunk_tokens, task.reader_threads) == ("float32", 32, 2)
    assert (task.read_path, task.verify_records) == ("staged", "never")
    assert task.protocol == Protocol(max_tokens=8, repeats=1, order="blocks", pin_hot_experts=2, stop_at_eos=False)
    assert [prompt.id for prompt in task.prompts] == ["a"]


def test_budgets_policies_and_allocations_may_vary_or_be_fixed(write):
    varied = load_study(
        write(
            MINIMAL
            + """
            [matrix]
            memory_budget_bytes = [8589934592, 17179869184]
            allocation = ["uniform", "trace"]
            eviction = ["lru", "s3-fifo"]
            """
        )
    )
    assert [(task.eviction, task.allocation, task.memory_budget_bytes) for task in varied.tasks] == [
        (eviction, allocation, budget)
        for eviction in ("lru", "s3-fifo")
        for allocation in ("uniform", "trace")
        for budget in (2**33, 2**34)
    ]
    fixed = load_study(write(MINIMAL + '[engine]\nmemory_budget_bytes = 8589934592\nallocation = "uniform"'))
    assert [(task.memory_budget_bytes, task.allocation) for task in fixed.tasks] == [(2**33, "uniform")]


def test_draft_policies_and_confidences_may_vary(write):
    policies = load_study(
        write(MINIMAL + '[engine]\ndraft_confidence = 0.5\n[matrix]\ndraft_policy = ["off", "gated"]')
    )
    assert [(task.draft_policy, task.draft_confidence) for task in policies.tasks] == [("off", 0.5), ("gated", 0.5)]
    confidences = load_study(
        write(MINIMAL + '[engine]\ndraft_policy = "gated"\n[matrix]\ndraft_confidence = [0.2, 0.8]')
    )
    assert [task.draft_confidence for task in confidences.tasks] == [0.2, 0.8]


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ("[matrix]\ndraft_confidence = [1.5]", ["draft_confidence is 1.5", "from 0 to 1"]),
        ('[matrix]\ndraft_policy = ["some"]', ["matrix.draft_policy[0] is 'some'", "'gated'"]),
        ("[matrix]\nverify_widht = [2]", ["'matrix.verify_widht'", "did you mean 'verify_width'?", "slots_per_layer"]),
        ("[engine]\nthreads = 2", ["'engine.threads'", "reader_threads"]),
        ("[protocoll]\nrepeats = 2", ["'protocoll'", "did you mean 'protocol'?", "checkpoint"]),
        ("[matrix]\nslots_per_layer = [0]", ["matrix.slots_per_layer[0] is 0", 'the word "all"']),
        ('[matrix]\nslots_per_layer = ["most"]', ["matrix.slots_per_layer[0] is 'most'", 'the word "all"']),
        ("[matrix]\nverify_width = []", ["matrix.verify_width is empty"]),
        ("[matrix]\nverify_width = [2, 2]", ["matrix.verify_width names 2 twice"]),
        ("[matrix]\nverify_width = [9]", ["verify_width is 9", "1 to 5"]),
        ("[matrix]\nverify_width = [2.0]", ["matrix.verify_width[0] is 2.0", "integer"]),
        ("[protocol]\nrepeats = 0", ["repeats is 0"]),
        ('[protocol]\nrepeats = "3"', ["protocol.repeats is '3'", "integer"]),
        ('[protocol]\norder = "random"', ["protocol.order is 'random'", "'abba'"]),
        ("[protocol]\npin_hot_experts = 2", ["pin_hot_experts needs order 'blocks'"]),
        ("[matrix]\nmemory_budget_bytes = [0]", ["memory_budget_bytes is 0", "1 or more"]),
        ('[matrix]\nmemory_budget_bytes = ["8GiB"]', ["matrix.memory_budget_bytes[0] is '8GiB'", "integer"]),
        ('[engine]\nallocation = "even"', ["engine.allocation is 'even'", "'uniform'"]),
        (
            "[engine]\nmemory_budget_bytes = 1\n[matrix]\nmemory_budget_bytes = [2]",
            ["memory_budget_bytes stands in [engine] and in [matrix]", "keep one"],
        ),
        (
            '[engine]\nmemory_budget_bytes = 1\n[matrix]\nslots_per_layer = ["all"]',
            ["matrix.slots_per_layer and memory_budget_bytes are both named", "keep one"],
        ),
        ("[matrix", ["not a TOML file", "line"]),
    ],
)
def test_a_mistake_names_the_file_the_key_and_what_is_allowed(write, addition, expected):
    path = write(MINIMAL + addition)
    with pytest.raises(UsageError) as caught:
        load_study(path)
    for part in (str(path), *expected):
        assert part in str(caught.value)
    assert "\n" not in caught.value.message + caught.value.hint or "TOML" in caught.value.message


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ('{"id": "a", "category": "c", "text": "t"}\nnot json\n', "line 2: not JSON"),
        ('{"id": "a", "category": "c", "text": "t", "tetx": "t"}\n', "line 1: unknown key 'tetx'"),
        ('{"id": "a", "category": "c"}\n', "line 1: the key 'text' is missing"),
        ('{"id": "a", "category": "c", "text": 1}\n', "line 1: text is 1"),
        ('{"id": "a", "category": "c", "text": " "}\n', "line 1: the text is empty"),
        ('{"id": "a", "category": "c", "text": "t"}\n\n{"id": "a", "category": "c", "text": "u"}\n', "called 'a'"),
        ("[1]\n", "line 1: not a JSON object"),
        ("\n", "holds no prompts"),
    ],
)
def test_a_mistake_in_the_prompts_names_its_line(write, tmp_path, prompts, expected):
    path = write(MINIMAL)
    (tmp_path / "prompts.jsonl").write_text(prompts)
    with pytest.raises(UsageError, match=r"prompts\.jsonl") as caught:
        load_study(path)
    assert expected in caught.value.message


def test_a_prompt_or_category_that_is_not_there_is_refused_with_those_that_are(write):
    with pytest.raises(UsageError, match=r"prompts.ids names 'c'.*the file holds: a, b"):
        load_study(write(MINIMAL + 'ids = ["a", "c"]'))
    with pytest.raises(UsageError, match=r"prompts.categories names 'maths'.*chat, code"):
        load_study(write(MINIMAL + 'categories = ["maths"]'))
    with pytest.raises(UsageError, match="leave no prompt"):
        load_study(write(MINIMAL + 'ids = ["a"]\ncategories = ["chat"]'))


def test_a_missing_file_of_either_kind_is_named(write, tmp_path):
    with pytest.raises(UsageError, match=r"nowhere.toml: cannot be read"):
        load_study(tmp_path / "nowhere.toml")
    with pytest.raises(UsageError, match=r"other.jsonl: the prompts cannot be read"):
        load_study(write(MINIMAL.replace("prompts.jsonl", "other.jsonl")))


@pytest.mark.parametrize("name", ["", "Tiny", "a b", "-a", "a/b", "x" * 49])
def test_a_name_that_is_no_safe_label_is_refused(write, name):
    with pytest.raises(UsageError, match="name is"):
        load_study(write(MINIMAL.replace('"tiny"', f'"{name}"')))


def test_paths_start_at_the_study_and_the_home_stays_the_nodes(write, tmp_path):
    source = load_study(write(MINIMAL.replace('"demo"', '"models/m"'))).tasks[0].checkpoint.source
    assert source == str(tmp_path / "models" / "m")
    home = MINIMAL.replace('"demo"', '"~/models/m"\nmtp = "~/m.safetensors"\ndigest = "abc"')
    checkpoint = load_study(write(home)).tasks[0].checkpoint
    assert (checkpoint.source, checkpoint.mtp, checkpoint.digest) == ("~/models/m", "~/m.safetensors", "abc")

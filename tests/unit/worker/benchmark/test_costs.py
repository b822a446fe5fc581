"""The costs are those of the forwards that speculation makes, taken in turns, and leave no trace in any count."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import numpy as np
import pytest

from tests.conftest import CODE
from worker.benchmark import costs as costs_module
from worker.benchmark.costs import HEAD_ROUNDS, ROUNDS, measurable_widths, measure_costs
from worker.benchmark.measure import measure
from worker.benchmark.protocol import PATHS, Measurement
from worker.benchmark.session import open_session
from worker.contract.task import CheckpointRef, Prompt, Protocol, Task

TASK = Task(
    checkpoint=CheckpointRef(source="demo"),
    prompts=(Prompt(id="code", category="code", text=CODE, chat=False),),
    verify_width=3,
    slots_per_layer=20,
    protocol=Protocol(max_tokens=24, repeats=1, warmup_tokens=0, rewarm_tokens=0),
)
MIB = 2**20


@pytest.fixture
def opened(cache_directory):
    """Open sessions; they are closed at the end."""
    sessions = []

    def open_it(**changes):
        sessions.append(open_session(replace(TASK, **changes), cache_directory))
        return sessions[-1]

    yield open_it
    for session in sessions:
        session.target.close()


def _records(session):
    tokens = session.task.protocol.max_tokens
    return [
        measure(session, session.prompts[0], Measurement(path=p, kind="measured", max_tokens=tokens)) for p in PATHS
    ]


class _Clock:
    """A clock that stands still but for what it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seen(monkeypatch):
    """The ids that go into verify forwards; one of n tokens takes n seconds, each of the first round 100."""
    noted: dict = {"clock": _Clock(), "verified": []}
    verify = costs_module.verify

    def noting(target, tokens, cache, mode):
        noted["verified"].append(tokens.tolist())
        noted["clock"].now += 100 if len(noted["verified"]) <= 5 else tokens.shape[0]
        return verify(target, tokens, cache, mode)

    monkeypatch.setattr(costs_module, "verify", noting)
    return noted


def test_the_widths_take_turns_over_the_greedy_ids_and_the_first_round_is_not_counted(opened, seen):
    session = opened()
    records = _records(session)
    costs = measure_costs(session, session.prompts[0], records, seen["clock"])
    widths = [len(tokens) for tokens in seen["verified"]]
    assert widths[: 5 * (ROUNDS + 1)] == [1, 2, 3, 4, 5, 5, 4, 3, 2, 1] * ((ROUNDS + 1) // 2)
    assert costs.verify_s == (1.0, 2.0, 3.0, 4.0, 5.0)
    ids, at = list(records[0].generation.token_ids), 0
    for tokens in seen["verified"]:
        at = 0 if at + len(tokens) > len(ids) else at
        assert tokens == ids[at : at + len(tokens)]
        at += len(tokens)


def test_the_head_is_fed_what_a_step_accepts_on_average(opened, seen, monkeypatch):
    session = opened()
    records = _records(session)
    extended = []
    extend = session.head.extend
    monkeypatch.setattr(
        session.head, "extend", lambda hidden, ids: extended.append(ids.shape[0]) or extend(hidden, ids)
    )
    measure_costs(session, session.prompts[0], records, seen["clock"])
    expected = 1 + round(mean(step.num_accepted for step in records[1].steps))
    assert expected > 1
    assert extended == [len(session.prompts[0].token_ids) - 1] + [expected] * (HEAD_ROUNDS + 1)


def test_nothing_is_left_in_the_counts(opened):
    session = opened()
    records = _records(session)
    before = [record.counters["prefill"].num_forwards for record in records]
    costs = measure_costs(session, session.prompts[0], records)
    assert session.target.telemetry.take() == ({}, ())
    assert session.target.reader.take().submitted == 0
    assert [record.counters["prefill"].num_forwards for record in records] == before
    assert min(*costs.verify_s, costs.draft_s, costs.head_sync_s) > 0


@pytest.mark.parametrize(
    ("changes", "widest"),
    [
        ({}, 5),
        ({"slots_per_layer": None}, 5),
        ({"slots_per_layer": 19}, 4),
        ({"slots_per_layer": 12}, 3),
        ({"slots_per_layer": 4, "verify_width": 1}, 1),
        ({"slots_per_layer": None, "memory_budget_bytes": 14 * MIB, "allocation": "uniform"}, 3),
    ],
)
def test_only_widths_that_fit_are_measured(opened, changes, widest):
    assert measurable_widths(opened(**changes)) == tuple(range(1, widest + 1))


def test_pinned_experts_leave_room_for_narrower_forwards_only(opened):
    session = opened()
    for expert in range(5):
        session.target.pools[3].pin(np.array([expert]))
    assert measurable_widths(session) == (1, 2, 3)


def test_a_sequence_shorter_than_the_widest_forward_is_repeated(opened, seen):
    session = opened(protocol=Protocol(max_tokens=2, repeats=1, warmup_tokens=0, rewarm_tokens=0))
    costs = measure_costs(session, session.prompts[0], _records(session), seen["clock"])
    assert costs.verify_s == (1.0, 2.0, 3.0, 4.0, 5.0)
    first, second = seen["verified"][1]
    assert seen["verified"][4] in ([first, second, first, second, first], [second, first, second, first, second])

"""Who runs what next: one job per machine, variants interleaved, studies in turn, nothing that does not fit."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.nodes.job import job_id
from fleet.nodes.node import NodeName
from fleet.schedule.plan import Free, Start, Waiting, first_position, interleaved, plan
from fleet.study.study import StudyId
from worker.contract.task import TaskId

A, B, C = NodeName("a"), NodeName("b"), NodeName("c")
S, OTHER = StudyId("s"), StudyId("other")


def job(
    position: int,
    *,
    target: NodeName | None = None,
    study: StudyId = S,
    positions: int = 10,
    attempts: int = 0,
    not_before_s: float = 0.0,
    group: str = "g",
) -> Waiting:
    return Waiting(
        job=job_id(TaskId(f"{study}{position}"), target),
        study_id=study,
        target=target,
        group=group,
        position=position,
        positions=positions,
        attempts=attempts,
        not_before_s=not_before_s,
    )


def free(*names: NodeName, **turns: int) -> list[Free]:
    return [Free(name=name, turns={StudyId(study): count for study, count in turns.items()}) for name in names]


def everywhere(_group: str, _node: NodeName) -> bool:
    return True


def started(starts: list[Start]) -> list[tuple[str, str]]:
    return [(start.job, start.node) for start in starts]


def test_each_free_machine_gets_one_job_in_order():
    found = plan([job(2), job(0), job(1)], free(A, B), fits=everywhere, now_s=0)
    assert started(found) == [("s0", "a"), ("s1", "b")]
    assert [start.number for start in found] == [1, 1]


def test_a_job_for_one_machine_goes_to_no_other():
    assert plan([job(0, target=C)], free(A, B), fits=everywhere, now_s=0) == []
    assert started(plan([job(0, target=B)], free(A, B), fits=everywhere, now_s=0)) == [("s0@b", "b")]


def test_a_job_waits_for_a_machine_that_it_fits():
    waiting = [job(0, group="large"), job(1, group="small")]
    only_b_is_large = lambda group, node: group == "small" or node == B  # noqa: E731
    assert started(plan(waiting, free(A), fits=only_b_is_large, now_s=0)) == [("s1", "a")]
    assert started(plan(waiting, free(A, B), fits=only_b_is_large, now_s=0)) == [("s1", "a"), ("s0", "b")]


def test_a_pause_is_kept_and_the_next_attempt_counts_on():
    entry = job(0, attempts=2, not_before_s=10.0)
    assert plan([entry], free(A), fits=everywhere, now_s=9.9) == []
    (found,) = plan([entry], free(A), fits=everywhere, now_s=10.0)
    assert found.number == 3


@pytest.mark.parametrize("target", [None, A])
def test_a_job_that_failed_before_comes_after_those_that_were_never_tried(target):
    waiting = [job(0, target=target, attempts=1), job(1, target=target)]
    (found,) = plan(waiting, free(A), fits=everywhere, now_s=0)
    assert found.job == waiting[1].job


@pytest.mark.parametrize("target", [None, A])
def test_studies_take_turns_on_a_machine(target):
    waiting = [job(0, target=target), job(0, study=OTHER, target=target, group="h")]
    (found,) = plan(waiting, free(A, s=3, other=2), fits=everywhere, now_s=0)
    assert found.study_id == OTHER
    (found,) = plan(waiting, free(A, s=3, other=4), fits=everywhere, now_s=0)
    assert found.study_id == S


def test_each_machine_begins_elsewhere_in_the_order_and_goes_round():
    names = [NodeName(f"mini-{index}") for index in range(12)]
    firsts = {first_position(name, 10) for name in names}
    assert len(firsts) > 5
    name = names[0]
    offset = first_position(name, 10)
    waiting = [job(position, target=name) for position in range(10)]
    order = []
    while waiting:
        (start,) = plan(waiting, free(name), fits=everywhere, now_s=0)
        order.append(next(entry.position for entry in waiting if entry.job == start.job))
        waiting = [entry for entry in waiting if entry.job != start.job]
    assert order == [(offset + index) % 10 for index in range(10)]


def test_a_job_that_may_not_start_now_holds_up_none_behind_it():
    waiting = [job(0), job(1), job(2, target=A)]
    short = lambda entry, _node: entry.position == 1  # noqa: E731
    assert started(plan(waiting, free(A, B), fits=everywhere, may_start=short, now_s=0)) == [("s1", "a")]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([None, A, B, C]), st.integers(0, 2), st.sampled_from("gh")),
        max_size=30,
        unique_by=lambda entry: entry[:2],
    )
)
def test_no_job_and_no_machine_is_given_twice_and_no_machine_idles_beside_a_job_that_it_could_run(entries):
    waiting = [job(place, target=target, attempts=tries, group=group) for place, target, tries, group in entries]
    h_runs_on_b = lambda group, node: group == "g" or node == B  # noqa: E731
    found = plan(waiting, free(A, B), fits=h_runs_on_b, now_s=0)
    assert max(Counter(start.job for start in found).values(), default=1) == 1
    assert max(Counter(start.node for start in found).values(), default=1) == 1
    left = [entry for entry in waiting if entry.job not in {start.job for start in found}]
    for idle in {A, B} - {start.node for start in found}:
        assert not [e for e in left if e.target == idle or (e.target is None and h_runs_on_b(e.group, idle))]


@pytest.mark.parametrize(
    ("count", "order"),
    [(1, [0]), (2, [0, 1]), (4, [0, 2, 1, 3]), (6, [0, 4, 2, 1, 5, 3]), (8, [0, 4, 2, 6, 1, 5, 3, 7])],
)
def test_the_order_by_hand(count, order):
    assert interleaved(count) == order


@given(st.integers(min_value=1, max_value=300))
def test_every_task_has_exactly_one_place(count):
    assert sorted(interleaved(count)) == list(range(count))


def test_the_demos_two_widths_are_mixed_instead_of_running_one_after_the_other():
    widths = [2, 2, 2, 3, 3, 3]
    assert [widths[index] for index in interleaved(6)] == [2, 3, 2, 2, 3, 3]

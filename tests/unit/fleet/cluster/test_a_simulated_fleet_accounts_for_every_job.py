"""A small simulated fleet over some nights: the real plan, night policy, book and ledger, without Ray."""

from __future__ import annotations

import pytest

from tests.speed.simulate_fleet import Outcome, simulate

JOBS = 300


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return simulate(machines=30, jobs=JOBS, nights=30, seed=3)


def test_every_job_is_done_exactly_once_or_its_end_is_explained(outcome: Outcome) -> None:
    assert outcome.done + sum(outcome.failed.values()) == JOBS
    assert outcome.unfinished == {}
    assert set(outcome.completions.values()) == {1}
    assert len(outcome.completions) == outcome.done
    assert outcome.done > 0.9 * JOBS
    assert set(outcome.failed) <= {"a permanent fault", "a transient fault", "no sign of life from its node"}


def test_the_work_takes_more_than_one_night_and_only_its_own_windows(outcome: Outcome) -> None:
    assert 1 < outcome.nights < 30


def test_the_same_seed_gives_the_same_run_to_the_last_event(outcome: Outcome) -> None:
    assert simulate(machines=30, jobs=JOBS, nights=30, seed=3).digest == outcome.digest
    assert simulate(machines=30, jobs=JOBS, nights=30, seed=4).digest != outcome.digest


def test_too_few_nights_leave_jobs_waiting_and_lose_none() -> None:
    outcome = simulate(machines=30, jobs=JOBS, nights=1, seed=3)
    left = sum(outcome.unfinished.values())
    assert left > 0
    assert outcome.done + sum(outcome.failed.values()) + left == JOBS
    assert set(outcome.unfinished) <= {"Planned", "Retrying"}

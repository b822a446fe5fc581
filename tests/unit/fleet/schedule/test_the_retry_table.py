"""permanent: never again. transient: twice more. lost: three times more."""

from __future__ import annotations

import pytest

from fleet.schedule.retry import GiveUp, Retry, decide


@pytest.mark.parametrize(("kind", "retries"), [("permanent", 0), ("transient", 2), ("lost", 3)])
def test_the_limit_of_each_kind(kind, retries):
    answers = [decide(kind, earlier=earlier) for earlier in range(5)]
    assert [isinstance(answer, Retry) for answer in answers] == [i < retries for i in range(5)]
    assert answers[4] == GiveUp()


def test_a_transient_failure_waits_longer_each_time_and_a_loss_not_at_all():
    pauses = [answer.delay_s for i in range(2) if isinstance(answer := decide("transient", earlier=i), Retry)]
    assert 0 < pauses[0] < pauses[1]
    assert decide("lost", earlier=0) == Retry(delay_s=0.0)

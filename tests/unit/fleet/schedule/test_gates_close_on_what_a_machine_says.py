from __future__ import annotations

import pytest

from fleet.errors import UsageError
from fleet.schedule.gates import NO_GATES, Closed, Gates, Open, check, gates_of, stricter
from worker.contract.condition import PresentCondition

READY = PresentCondition(
    on_ac_power=True,
    power_mode="normal",
    thermal_level="nominal",
    load_average=0.4,
    memory_pressure="normal",
    model_processes=(),
    user_idle_s=3600.0,
    users=("anna",),
)
BUSY = PresentCondition(
    on_ac_power=False,
    thermal_level="heavy",
    memory_pressure="critical",
    model_processes=("LM Studio", "ollama"),
    user_idle_s=40.0,
)


def test_a_machine_that_is_ready_passes_every_gate() -> None:
    assert check(Gates(user_idle_s=600), READY) == Open()


def test_each_reason_is_a_plain_sentence() -> None:
    assert check(Gates(user_idle_s=600), BUSY) == Closed(
        reasons=(
            "on battery",
            "thermal pressure is heavy",
            "LM Studio and ollama run",
            "memory pressure is critical",
            "the user was active 40 s ago, the gate asks for 10 min 00 s",
        )
    )


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (PresentCondition(thermal_level="limited"), "the clock is lowered by heat"),
        (PresentCondition(model_processes=("ollama",)), "ollama runs"),
    ],
)
def test_a_reason_fits_what_it_speaks_of(condition: PresentCondition, reason: str) -> None:
    found = check(Gates(), condition)
    assert isinstance(found, Closed)
    assert found.reasons == (reason,)


def test_what_a_machine_does_not_say_is_named_and_closes_nothing() -> None:
    assert check(Gates(user_idle_s=600), PresentCondition()) == Open(
        unknown=("on_ac_power", "thermal_level", "model_processes", "memory_pressure", "user_idle_s")
    )
    found = check(Gates(), PresentCondition(on_ac_power=False))
    assert found == Closed(reasons=("on battery",), unknown=("thermal_level", "model_processes", "memory_pressure"))


def test_a_gate_that_is_not_asked_is_neither_closed_nor_named() -> None:
    assert check(NO_GATES, BUSY) == Open()
    assert check(NO_GATES, PresentCondition()) == Open()
    assert check(Gates(), READY) == Open()


def test_the_user_s_last_touch_counts_to_the_second() -> None:
    gates = Gates(ac_power=False, thermal_nominal=False, quiet=False, user_idle_s=40)
    assert check(gates, BUSY) == Open()
    assert isinstance(check(stricter(gates, Gates(user_idle_s=41)), BUSY), Closed)


def test_the_defaults_are_those_of_nights() -> None:
    assert gates_of({}, where="x.toml") == Gates()
    assert Gates() == Gates(ac_power=True, thermal_nominal=True, quiet=True, user_idle_s=None)
    assert gates_of({"quiet": False, "user_idle_s": 600}, where="x.toml") == Gates(quiet=False, user_idle_s=600.0)


def test_a_studys_and_a_machines_gates_count_both() -> None:
    one, other = Gates(ac_power=False, user_idle_s=60), Gates(quiet=False, thermal_nominal=False, user_idle_s=600)
    both = Gates(ac_power=True, thermal_nominal=True, quiet=True, user_idle_s=600)
    assert stricter(one, other) == stricter(other, one) == both
    assert stricter(one, NO_GATES) == one


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"ac_powr": True}, "unknown key 'gates.ac_powr'; did you mean 'ac_power'"),
        ({"quiet": "yes"}, "gates.quiet is 'yes'"),
        ({"quiet": 1}, "gates.quiet is 1"),
        ({"user_idle_s": -1}, "gates.user_idle_s is -1"),
        ({"user_idle_s": "10m"}, "gates.user_idle_s is '10m'"),
    ],
)
def test_a_wrong_table_is_refused_by_file_and_key(table: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as found:
        gates_of(table, where="studies/speed.toml")
    assert str(found.value).startswith("studies/speed.toml: ")
    assert words in str(found.value)

"""`fleet schedule`: what is added is kept in the ledger, shown with its next opening, and removed for good."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from fleet.cli.schedule import next_words, read_schedules
from fleet.ledger.schedule_events import NightBegan, ScheduleAdded, ScheduleName
from fleet.ledger.sqlite import Ledger, record
from fleet.study.study import StudyId
from tests.unit.fleet.cli.test_every_mistake_is_one_line_and_an_exit_code import expect, fleet, study


def test_a_schedule_is_added_listed_shown_and_removed(tmp_path: Path) -> None:
    path, data = study(tmp_path), ("--data", str(tmp_path / "data"))
    words = ("--window", "22:00-07:00", "--days", "mon-fri", "--timezone", "Europe/Berlin", "--grace", "1h30m")
    added = fleet("schedule", "add", str(path), *words, "--repeat", "once", *data, "--json")
    assert added.returncode == 0, added.stderr
    found = json.loads(added.stdout)
    assert found["next_open_s"] is not None
    assert {
        key: found[key] for key in ("schedule", "study_path", "window", "days", "timezone", "repeat", "grace_s")
    } == {
        "schedule": "tiny",
        "study_path": str(path),
        "window": "22:00-07:00",
        "days": "mon-fri",
        "timezone": "Europe/Berlin",
        "repeat": "once",
        "grace_s": 5400.0,
    }
    listed = json.loads(fleet("schedule", "list", *data, "--json").stdout)["schedules"]
    assert [(entry["schedule"], entry["nights"]) for entry in listed] == [("tiny", [])]
    table = fleet("schedule", "list", *data).stdout
    assert "Europe/Berlin" in table
    assert f"study            {path}" in fleet("schedule", "show", "tiny", *data).stdout
    assert fleet("schedule", "remove", "tiny", *data).returncode == 0
    assert json.loads(fleet("schedule", "list", *data, "--json").stdout) == {"schedules": []}
    assert [state.removed for state in read_schedules(tmp_path / "data")] == [True]


def test_every_mistake_names_what_is_wrong_and_writes_nothing(tmp_path: Path) -> None:
    path, data = str(study(tmp_path)), ("--data", str(tmp_path / "data"))
    good = ("--window", "22:00-07:00")
    expect(fleet("schedule", "add", path, "--window", "22-7", *data), 2, "window is '22-7'", "HH:MM")
    expect(fleet("schedule", "add", path, *good, "--days", "mo", *data), 2, "'mo' is no day")
    expect(fleet("schedule", "add", path, *good, "--timezone", "Mars", *data), 2, "timezone is 'Mars'")
    expect(
        fleet("schedule", "add", path, *good, "--repeat", "daily", *data), 2, "--repeat is 'daily'", "nightly or once"
    )
    expect(fleet("schedule", "add", path, *good, "--grace", "30", *data), 2, "--grace is '30'")
    expect(fleet("schedule", "add", path, *good, "--name", "Ä", *data), 2, "--name is")
    expect(fleet("schedule", "add", str(tmp_path / "none.toml"), *good, *data), 2, "none.toml")
    expect(fleet("schedule", "show", "none", *data), 2, "no schedule 'none'", "fleet schedule add")
    expect(fleet("schedule", "remove", "none", *data), 2, "no schedule 'none'")
    assert not (tmp_path / "data").exists()


def test_a_study_that_is_not_in_order_is_refused_even_under_another_name(tmp_path: Path) -> None:
    broken = study(tmp_path, matrix="verify_widht = [2]")
    data = ("--data", str(tmp_path / "data"))
    expect(fleet("schedule", "add", str(broken), "--window", "22:00-07:00", "--name", "n", *data), 2, "verify_widht")


def test_a_name_is_taken_once_until_it_is_removed(tmp_path: Path) -> None:
    words = ("schedule", "add", str(study(tmp_path)), "--window", "00:00-24:00", "--data", str(tmp_path / "data"))
    assert "always open" in fleet(*words).stdout
    expect(fleet(*words), 2, "'tiny' already", "fleet schedule remove tiny")
    assert fleet(*words, "--name", "other").returncode == 0
    assert fleet("schedule", "remove", "tiny", "--data", str(tmp_path / "data")).returncode == 0
    assert fleet(*words).returncode == 0


def test_the_ledger_keeps_schedules_beside_studies_and_machines(tmp_path: Path) -> None:
    name = ScheduleName("speed")
    added = ScheduleAdded(
        schedule=name, study_path="/s.toml", window="a", days="b", timezone="c", repeat="nightly", grace_s=1.0
    )
    record(tmp_path, added, NightBegan(schedule=name, night="2026-03-01", study_id=StudyId("speed-1")))
    (state,) = read_schedules(tmp_path)
    assert state.added == added
    assert [night.study_id for night in state.nights] == ["speed-1"]
    with Ledger(tmp_path, read_only=True) as ledger:
        assert ledger.studies() == []
        assert ledger.machines() == {}
        assert ledger.open_studies() == []
    assert read_schedules(tmp_path / "nowhere") == ()


MONDAY = datetime(2026, 3, 2, 18, 40).timestamp()


@pytest.mark.parametrize(
    ("opens", "words"),
    [
        (datetime(2026, 3, 2, 22, 0), "today 22:00, in 3 h 20 min"),
        (datetime(2026, 3, 3, 1, 0), "tomorrow 01:00, in 6 h 20 min"),
        (datetime(2026, 3, 7, 22, 0), "Saturday 22:00, in 123 h 20 min"),
        (datetime(2026, 3, 9, 22, 0), "Mon 09 Mar 22:00, in 171 h 20 min"),
    ],
)
def test_the_next_opening_is_told_in_words_on_this_machines_clock(opens: datetime, words: str) -> None:
    assert next_words(opens.timestamp(), state="waiting", left_s=0.0, now_s=MONDAY) == words


def test_what_is_open_over_or_endless_is_told_so() -> None:
    assert next_words(None, state="open", left_s=None, now_s=MONDAY) == "always open"
    assert next_words(1.0, state="open", left_s=5400.0, now_s=MONDAY) == "open now, for 1 h 30 min"
    assert next_words(1.0, state="over", left_s=0.0, now_s=MONDAY) == "never: its study is done"

"""The events survive a process that is killed, cannot be changed, and a ledger that cannot be used says why."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fleet.errors import DriverBusyError, StorageError
from fleet.ledger.events import MachinePaused, StudyFinished, StudySubmitted, TaskPlanned
from fleet.ledger.machines import MachineState
from fleet.ledger.sqlite import LEDGER_FILE, Ledger, driving
from fleet.ledger.state import Planned
from fleet.nodes.node import NodeName
from fleet.study.study import StudyId
from worker.contract.task import TaskId


def submitted(study: str) -> StudySubmitted:
    return StudySubmitted(study_id=StudyId(study), name=study, study="{}")


def planned(study: str, task: str) -> TaskPlanned:
    return TaskPlanned(study_id=StudyId(study), task_id=TaskId(task), position=0)


def test_events_come_back_in_order_with_their_time(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.append(submitted("s"), planned("s", "t"), at_s=5.0)
        ledger.append(submitted("other"))
    with Ledger(tmp_path, read_only=True) as ledger:
        records = ledger.records(StudyId("s"))
        assert [(record.at_s, record.event) for record in records] == [(5.0, submitted("s")), (5.0, planned("s", "t"))]
        state = ledger.state(StudyId("s"))
        assert state is not None
        assert state.jobs == {"t": Planned()}
        assert ledger.state(StudyId("never")) is None


def test_the_study_submitted_last_is_the_last(tmp_path):
    with Ledger(tmp_path) as ledger:
        for study in ("a", "b", "a"):
            ledger.append(submitted(study))
        assert [state.study_id for state in ledger.studies()] == ["b", "a"]


def test_an_append_is_all_or_nothing(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.append(submitted("s"))
        broken = planned("s", "t")
        object.__setattr__(broken, "study_id", None)  # NOT NULL: the second row of the transaction fails
        with pytest.raises(StorageError):
            ledger.append(planned("s", "u"), broken)
        assert len(ledger.records(StudyId("s"))) == 1
        ledger.append(planned("s", "u"))
        assert len(ledger.records(StudyId("s"))) == 2


@pytest.mark.parametrize("statement", ["UPDATE events SET kind = 'x'", "DELETE FROM events"])
def test_events_cannot_be_changed_or_removed(tmp_path, statement):
    with Ledger(tmp_path) as ledger:
        ledger.append(submitted("s"))
    with sqlite3.connect(tmp_path / LEDGER_FILE) as db, pytest.raises(sqlite3.IntegrityError, match="never"):
        db.execute(statement)
    db.close()


def test_what_was_recorded_survives_a_kill(tmp_path):
    code = f"""
        import os, signal
        from pathlib import Path
        from fleet.ledger.events import StudySubmitted
        from fleet.ledger.sqlite import Ledger, driving
        from fleet.study.study import StudyId
        data = Path({str(tmp_path)!r})
        with driving(data), Ledger(data) as ledger:
            ledger.append(StudySubmitted(study_id=StudyId("s"), name="s", study="{{}}"))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert ended.returncode == -signal.SIGKILL
    with driving(tmp_path), Ledger(tmp_path) as ledger:  # and its lock is free
        assert len(ledger.records(StudyId("s"))) == 1


def test_a_second_driver_is_told_who_the_first_is(tmp_path):
    with driving(tmp_path), pytest.raises(DriverBusyError, match=f"process {os.getpid()}") as caught, driving(tmp_path):
        pass
    assert caught.value.exit_code == 3
    with driving(tmp_path):
        pass


def test_reading_is_possible_while_another_drives(tmp_path):
    with driving(tmp_path), Ledger(tmp_path) as writer:
        writer.append(submitted("s"))
        with Ledger(tmp_path, read_only=True) as reader:
            assert len(reader.studies()) == 1


def test_a_directory_that_cannot_be_is_named_with_advice(tmp_path):
    (tmp_path / "file").write_text("")
    blocked = tmp_path / "file" / "data"
    for use in (lambda: Ledger(blocked), lambda: driving(blocked).__enter__()):
        with pytest.raises(StorageError, match=r"file/data/ledger.*--data") as caught:
            use()
        assert caught.value.exit_code == 2


def test_a_file_that_is_no_ledger_and_one_of_a_later_version_are_refused(tmp_path):
    with pytest.raises(StorageError, match="holds no studies yet"):
        Ledger(tmp_path, read_only=True)
    (tmp_path / LEDGER_FILE).write_text("this is no database, only a text that is long enough to be read as one" * 20)
    with pytest.raises(StorageError, match="not a database"):
        Ledger(tmp_path)
    later = tmp_path / "later"
    with Ledger(later) as ledger:
        ledger.append(submitted("s"))
    db = sqlite3.connect(later / LEDGER_FILE)
    db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(StorageError, match=r"later version \(99\)"):
        Ledger(later)
    assert Path(later / LEDGER_FILE).exists()


def test_a_ledger_of_version_1_is_read_as_it_is_and_brought_up_to_date_when_written(tmp_path):
    with sqlite3.connect(tmp_path / LEDGER_FILE) as db:
        db.executescript(
            """
            CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, study_id TEXT NOT NULL,
                                 kind TEXT NOT NULL, fields TEXT NOT NULL) STRICT;
            CREATE INDEX events_by_study ON events (study_id, seq);
            INSERT INTO events (at_s, study_id, kind, fields) VALUES
                (1.0, 's', 'StudySubmitted', '{"study_id": "s", "name": "s", "study": "{}"}'),
                (2.0, 's', 'TaskPlanned', '{"study_id": "s", "task_id": "t", "position": 0}');
            PRAGMA user_version = 1;
            """
        )
    db.close()
    for read_only in (True, False, True):
        with Ledger(tmp_path, read_only=read_only) as ledger:
            (state,) = ledger.studies()
            assert state.jobs == {"t": Planned()}
            assert ledger.machines() == {}
    with Ledger(tmp_path) as ledger:
        ledger.append(MachinePaused(machine=NodeName("mini"), reason="in use"))
        assert ledger.machines() == {"mini": MachineState(paused="in use")}


def test_the_studies_that_are_not_over_are_known(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.append(submitted("a"), submitted("b"), StudyFinished(study_id=StudyId("a"), num_done=0, num_failed=0))
        assert ledger.open_studies() == ["b"]
        ledger.append(submitted("a"))
        assert ledger.open_studies() == ["b", "a"]
        ledger.append(planned("a", "t"))
        assert ledger.open_studies() == ["b", "a"]

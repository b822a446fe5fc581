"""The ledger on disk: one append-only table of events in SQLite, one transaction per append, and the driver's lock.

The events are the truth; every state is computed from them. Whoever drives studies holds `ledger.lock`, which the
operating system lets go when the process dies in whatever way: an attempt that is still "running" when the lock is free
belongs to a dead driver.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fleet.errors import DriverBusyError, StorageError
from fleet.ledger.events import MACHINE_SUBJECT, Event, Recorded, event_from_json, event_to_json, subject
from fleet.ledger.machines import MachineState, fold_machines
from fleet.ledger.schedule_events import SCHEDULE_SUBJECT, ScheduleEvent
from fleet.ledger.schedule_state import Schedules, fold_schedules
from fleet.ledger.state import StudyState, fold
from fleet.nodes.node import NodeName
from fleet.study.study import StudyId
from worker.contract.private import own_directory, owner_only
from worker.contract.task import TaskId

LEDGER_FILE = "ledger.sqlite3"
LOCK_FILE = "ledger.lock"
LEDGER_VERSION = 2

_TO_VERSION_2 = """
ALTER TABLE events RENAME COLUMN study_id TO subject;
DROP INDEX IF EXISTS events_by_study;
"""
"""Since version 2 an event speaks of a study or of a machine."""

_CREATE = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_s REAL NOT NULL,
    subject TEXT NOT NULL,
    kind TEXT NOT NULL,
    fields TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS events_by_subject ON events (subject, seq);
CREATE TRIGGER IF NOT EXISTS events_stay BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER IF NOT EXISTS events_last BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
"""


class Ledger:
    """Owns the connection to one data directory's ledger. Use as a context manager, in one thread."""

    def __init__(self, data: Path, *, read_only: bool = False) -> None:
        """Raises: StorageError when the ledger cannot be opened, is no ledger, or is of a later build."""
        self._data = data
        self._path = data / LEDGER_FILE
        with self._guarded():
            if read_only:
                if not self._path.is_file():
                    raise StorageError(f"{data}: holds no studies yet", "fleet submit STUDY starts one")
                self._db = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            else:
                own_directory(data)
                open(self._path, "ab", opener=owner_only).close()  # SQLite gives its other files the same mode
                self._db = sqlite3.connect(self._path, isolation_level=None, timeout=10)
        try:
            with self._guarded():
                self._prepare(read_only)
        except StorageError:
            self._db.close()
            raise

    def _prepare(self, read_only: bool) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > LEDGER_VERSION:
            raise StorageError(
                f"{self._path}: written by a later version ({version})", "use that version, or other --data"
            )
        self._subject = "study_id" if read_only and version == 1 else "subject"
        if not read_only:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            if version == 1:
                self._db.executescript(_TO_VERSION_2)
            self._db.executescript(_CREATE)
            self._db.execute(f"PRAGMA user_version={LEDGER_VERSION}")

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def append(self, *events: Event, at_s: float | None = None) -> None:
        """Record events in one transaction: all of them or none.

        Raises: StorageError when they could not be written.
        """
        at_s = time.time() if at_s is None else at_s
        rows = [(at_s, subject(event), *event_to_json(event)) for event in events]
        with self._guarded():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT INTO events (at_s, subject, kind, fields) VALUES (?, ?, ?, ?)", rows)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def records(self, study_id: StudyId) -> list[Recorded]:
        """Every event of one study, oldest first."""
        return self._select(f"WHERE {self._subject} = ?", study_id)

    def since(self, seq: int) -> list[Recorded]:
        """Every event after the one with this number, oldest first."""
        return self._select("WHERE seq > ?", seq)

    def last_seq(self) -> int:
        """The number of the latest event, 0 when there is none."""
        with self._guarded():
            return self._db.execute("SELECT COALESCE(MAX(seq), 0) FROM events").fetchone()[0]

    def study_ids(self) -> set[StudyId]:
        """Every study that was ever submitted."""
        with self._guarded():
            query = f"SELECT DISTINCT {self._subject} FROM events WHERE kind = 'StudySubmitted'"  # noqa: S608 - fixed texts
            return {StudyId(study_id) for (study_id,) in self._db.execute(query).fetchall()}

    def durations(self) -> list[tuple[StudyId, TaskId, NodeName, float]]:
        """What every completed attempt took, from its start to its tables in the store, oldest first. Units: seconds."""
        with self._guarded():
            rows = self._db.execute(
                "SELECT at_s, subject, kind, json_extract(fields, '$.attempt_id'), json_extract(fields, '$.task_id'), "
                "json_extract(fields, '$.node') FROM events WHERE kind IN ('AttemptStarted', 'AttemptCompleted') "
                "ORDER BY seq"
            ).fetchall()
        started: dict[tuple[str, str], tuple[float, str]] = {}
        found = []
        for at_s, study, kind, attempt, task, node in rows:
            if kind == "AttemptStarted":
                started[study, attempt] = at_s, node
            elif (study, attempt) in started:
                began_s, where = started.pop((study, attempt))
                found.append((StudyId(study), TaskId(task), NodeName(where), at_s - began_s))
        return found

    def open_studies(self) -> list[StudyId]:
        """The studies that were submitted and did not finish since, the earliest first."""
        with self._guarded():
            rows = self._db.execute(
                "SELECT subject FROM events WHERE kind IN ('StudySubmitted', 'StudyFinished') GROUP BY subject "
                "HAVING MAX(CASE kind WHEN 'StudySubmitted' THEN seq ELSE 0 END) = MAX(seq) ORDER BY MAX(seq)"
            ).fetchall()
        return [StudyId(study_id) for (study_id,) in rows]

    def machines(self) -> dict[NodeName, MachineState]:
        """The state of every machine that anything was recorded of."""
        return fold_machines(self.machine_records())

    def machine_records(self) -> list[Recorded]:
        """Everything recorded of machines, oldest first."""
        return self._select(f"WHERE {self._subject} GLOB ?", f"{MACHINE_SUBJECT}*")

    def schedules(self) -> Schedules:
        """Every schedule that was ever added, removed ones included."""
        records = self._select(f"WHERE {self._subject} GLOB ?", f"{SCHEDULE_SUBJECT}*")
        return fold_schedules((r.at_s, r.event) for r in records if isinstance(r.event, ScheduleEvent))

    def _select(self, where: str, value: str | int) -> list[Recorded]:
        with self._guarded():
            query = f"SELECT seq, at_s, kind, fields FROM events {where} ORDER BY seq"  # noqa: S608 - fixed texts
            rows = self._db.execute(query, (value,)).fetchall()
        return [Recorded(seq=seq, at_s=at_s, event=event_from_json(kind, fields)) for seq, at_s, kind, fields in rows]

    def state(self, study_id: StudyId) -> StudyState | None:
        """The study's present state, or None when nobody ever submitted it."""
        records = self.records(study_id)
        return fold(study_id, records) if records else None

    def studies(self) -> list[StudyState]:
        """Every study, the one submitted last at the end."""
        with self._guarded():
            name = self._subject
            query = f"SELECT {name} FROM events WHERE kind = 'StudySubmitted' GROUP BY {name} ORDER BY MAX(seq)"  # noqa: S608
            rows = self._db.execute(query).fetchall()
        return [fold(StudyId(study_id), self.records(StudyId(study_id))) for (study_id,) in rows]

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StorageError(f"{self._path}: {_reason(error)}", _advice(error)) from error


Answer = TypeVar("Answer")


def ask_ledger(data: Path, question: Callable[[Ledger], Answer], *, otherwise: Answer) -> Answer:
    """Read something from a data directory's ledger; `otherwise` where there is none yet. Makes none."""
    if not (data / LEDGER_FILE).is_file():
        return otherwise
    with Ledger(data, read_only=True) as ledger:
        return question(ledger)


def known_machines(data: Path) -> dict[NodeName, MachineState]:
    """What is known of machines."""
    return ask_ledger(data, Ledger.machines, otherwise={})


def record(data: Path, *events: Event) -> None:
    """Record what a command says; the driver follows. Raises: StorageError."""
    with Ledger(data) as ledger:
        ledger.append(*events)


@contextmanager
def driving(data: Path) -> Iterator[None]:
    """Be the one driver of a data directory for as long as the block lasts.

    Raises: DriverBusyError naming the process that is; StorageError when the lock file cannot be written.
    """
    from filelock import FileLock, Timeout

    path = data / LOCK_FILE
    try:
        own_directory(data)
        lock = FileLock(path, timeout=0, mode=0o600)
        lock.acquire()
    except Timeout:
        holder = path.read_text(encoding="utf-8").strip()
        who = f"process {holder}" if holder else "another process"
        raise DriverBusyError(
            f"{data}: {who} is running studies there", "wait for it, end it, or choose another --data"
        ) from None
    except OSError as error:
        raise StorageError(f"{path}: {_reason(error)}", _advice(error)) from error
    try:
        path.write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be written: {error.strerror}"
    return f"cannot be used: {error}"


def _advice(error: Exception) -> str:
    full = "full" in str(error) or "space" in str(error)
    return (
        "free some space and submit again" if full else "check its permissions, or choose another directory with --data"
    )

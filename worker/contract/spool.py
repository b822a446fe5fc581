"""The spool: the directory through which a benchmark process hands its results to whoever supervises it.

    progress.jsonl        one Progress per line, appended while the run goes on
    tables/NAME.arrow     one Arrow IPC file per table of schema.py, written whole and then renamed into place
    outcome.json          written last: its presence means the run ended by itself
    worker.log            the process's standard error

Nothing that looks finished is ever half-written: tables and the outcome appear by rename.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from worker.contract.errors import StorageError
from worker.contract.outcome import Completed, Failed, Outcome, outcome_from_dict
from worker.contract.private import own_directory, owner_only
from worker.contract.schema import SCHEMAS

PROGRESS_FILE = "progress.jsonl"
OUTCOME_FILE = "outcome.json"
LOG_FILE = "worker.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands.

    `phase` is one of prepare, verify, load, trial, warmup, rewarm, greedy, speculative, calibrate, instrumented, timeline,
    checks, costs, done.
    `fraction` (0..1) counts the work of the whole task, so a remaining time can be told from it.
    Units: `tok_s` tokens per second of the last finished repeat.
    """

    phase: str
    fraction: float
    prompt_id: str | None = None
    repeat: int | None = None
    repeats: int | None = None
    tok_s: float | None = None
    detail: str = ""
    at_s: float = field(default_factory=time.time)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Progress:
        return cls(**json.loads(line))


class SpoolWriter:
    """The benchmark process's end of the spool. Owns the directory's files; one writer per run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            own_directory(directory / "tables")
            self._progress = open(directory / PROGRESS_FILE, "a", encoding="utf-8", opener=owner_only)  # noqa: SIM115
        except OSError as error:
            raise _storage_error(directory, error) from error

    def progress(self, progress: Progress) -> None:
        try:
            self._progress.write(progress.to_json() + "\n")
            self._progress.flush()
        except OSError as error:
            raise _storage_error(self.directory, error) from error

    def complete(self, tables: dict[str, pa.Table]) -> Completed:
        """Write every table, then the outcome. Raises: StorageError; then no outcome exists."""
        try:
            for name, table in tables.items():
                path = self.directory / "tables" / f"{name}.arrow"
                with (
                    _replacing(path) as part,
                    pa.OSFile(str(part), "wb") as sink,
                    pa.ipc.new_file(sink, table.schema) as out,
                ):
                    out.write_table(table)
        except OSError as error:
            raise _storage_error(self.directory, error) from error
        outcome = Completed(tables={name: table.num_rows for name, table in tables.items()})
        self.finish(outcome)
        return outcome

    def finish(self, outcome: Outcome) -> None:
        try:
            with _replacing(self.directory / OUTCOME_FILE) as part:
                part.write_text(json.dumps(outcome.to_dict(), ensure_ascii=False), encoding="utf-8")
            self._progress.close()
        except OSError as error:
            raise _storage_error(self.directory, error) from error


class _replacing:  # noqa: N801 - reads as a verb in a with statement
    """Give a temporary path to write; rename it into place on success, remove it on failure."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Path:
        open(self._part, "wb", opener=owner_only).close()
        return self._part

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            with self._part.open("rb") as handle:
                os.fsync(handle.fileno())
            self._part.replace(self._path)
        else:
            self._part.unlink(missing_ok=True)


def read_outcome(directory: Path) -> Outcome | None:
    """The outcome, or None when the run has not ended by itself."""
    try:
        text = (directory / OUTCOME_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return outcome_from_dict(json.loads(text))
    except (KeyError, ValueError, TypeError) as error:
        return Failed(
            kind="permanent", error="SpoolError", message=f"{directory / OUTCOME_FILE} is no outcome: {error}"
        )


def read_tables(directory: Path) -> dict[str, pa.Table]:
    """Every table that the spool holds, checked against the schemas. Raises: ValueError naming the table that differs."""
    tables: dict[str, pa.Table] = {}
    for name, schema in SCHEMAS.items():
        path = directory / "tables" / f"{name}.arrow"
        if not path.exists():
            continue
        with pa.OSFile(str(path), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
        if not table.schema.equals(schema):
            raise ValueError(f"{path}: the schema of {name} differs from this build's")
        tables[name] = table
    return tables


def _storage_error(directory: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write to {directory}: {error.strerror or error}", "free some space or choose another directory"
    )

"""The errors a benchmark run can end with.

    WorkerError                 message, hint, kind
    |-- TaskError               the task cannot be run as written            permanent
    |-- CheckpointError         missing, truncated, changed or foreign bytes permanent
    |-- StorageError            a directory cannot be written, or is full    transient
    |-- MachineBusyError        another benchmark holds this machine's lock  transient
    `-- InterruptedRunError     the run was told to stop                     lost

Every message says what happened, where, and what was expected; the hint says what to type next. Errors cross process
boundaries as `Failed` values (see outcome.py), so they carry strings only and survive pickling.
"""

from __future__ import annotations

from typing import Literal

FailureKind = Literal["permanent", "transient", "lost"]
"""permanent: never retried. transient: retried with a limit. lost: run again elsewhere or later."""


class WorkerError(Exception):
    """A failure with one line of explanation and one line of advice."""

    kind: FailureKind = "permanent"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class TaskError(WorkerError):
    """The task asks for something that this checkpoint or engine cannot do."""


class CheckpointError(WorkerError):
    """The checkpoint is missing, truncated, changed, or not of a kind that the engine reads."""


class StorageError(WorkerError):
    """A file could not be written: no permission, no space, or no such place."""

    kind: FailureKind = "transient"


class MachineBusyError(WorkerError):
    """Another benchmark is running on this machine."""

    kind: FailureKind = "transient"


class InterruptedRunError(WorkerError):
    """The run was stopped from outside before it ended."""

    kind: FailureKind = "lost"

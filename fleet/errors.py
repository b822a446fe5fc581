"""The errors that a user can meet, each with the exit code of the command that ends with it.

    FleetError                     message, hint
    |-- TasksFailedError      1    a study ended and some of its tasks failed
    |-- UsageError            2    arguments, a study or the inventory: names the file, the key and what is allowed
    |   `-- StorageError      2    the data directory cannot be read or written, or is full
    |-- ClusterError          3    Ray could not be started, or no node answers
    |   `-- DriverBusyError   3    another fleet process works on this data directory
    `-- InterruptedStudyError 130  stopped by Ctrl-C; the study can go on later

The message says what happened, where, and what was expected; the hint says what to type next. A mismatch of tokens is a
result and never an error.
"""

from __future__ import annotations


class FleetError(Exception):
    """An end of a command that needs no traceback: one line of explanation, one line of advice."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = _one_line(message)
        self.hint = _one_line(hint)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def _one_line(text: str) -> str:
    """The text with line ends and whatever else would not print, or would steer a terminal, escaped."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class TasksFailedError(FleetError):
    """The study ended, and at least one task failed or gave tokens that differ."""

    exit_code = 1


class UsageError(FleetError):
    """The command, a study or the inventory asks for something that does not exist or does not fit."""

    exit_code = 2


class StorageError(UsageError):
    """The data directory cannot be used: no permission, no space, damaged, or not a directory."""


class ClusterError(FleetError):
    """The cluster could not be started or reached."""

    exit_code = 3


class DriverBusyError(ClusterError):
    """Another process drives the studies of this data directory."""


class InterruptedStudyError(FleetError):
    """The user stopped the study; what is done stays done."""

    exit_code = 130

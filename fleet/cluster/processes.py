"""Processes that outlive the command that started them: told apart for sure, found again, and ended with all they started.

A process is its number and the moment of its creation, because numbers come back. What Ray starts stays in the session of
its first process, so that a session's members are Ray's even when everything between them has been killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

_SAME_S = 5.0
"""A clock that is set moves creation times a little; a number does not come back that soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """One process for sure. Units: `created_s` seconds since 1970."""

    pid: int
    created_s: float

    @classmethod
    def of(cls, process: psutil.Process) -> ProcessId:
        """Raises: psutil.Error when it is gone."""
        return cls(pid=process.pid, created_s=process.create_time())

    def find(self) -> psutil.Process | None:
        """The process while it lives. A zombie does not."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.created_s) < _SAME_S and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def session_of(leader: ProcessId) -> list[psutil.Process]:
    """The living processes of the session that `leader` began, itself among them, if it began one.

    A session's number is not given to a new process while it has members: whoever is in it belongs to it.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if (
                os.getsid(process.pid) == leader.pid
                and process.create_time() > leader.created_s - _SAME_S
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    stranger = any(process.pid == leader.pid for process in found) and leader.find() is None
    return [] if stranger else found


def family(leaders: Iterable[ProcessId]) -> list[psutil.Process]:
    """Every living member of these sessions, and all their descendants, whatever session those are in."""
    found: dict[int, psutil.Process] = {}
    for leader in leaders:
        for process in session_of(leader):
            found[process.pid] = process
            with contextlib.suppress(psutil.Error):
                found.update({child.pid: child for child in process.children(recursive=True)})
    return list(found.values())


def end(leaders: Iterable[ProcessId], *, grace_s: float) -> list[psutil.Process]:
    """End these sessions with all descendants: the leaders are asked first, then the rest is killed.

    Returns what still lives, which should be nothing.
    """
    leaders = list(leaders)
    members = family(leaders)
    for leader in leaders:
        if process := leader.find():
            _signal(process.terminate)
    psutil.wait_procs(members, timeout=grace_s)
    everyone = {process.pid: process for process in (*members, *family(leaders))}
    rest = [process for process in everyone.values() if _lives(process)]
    for process in rest:
        _signal(process.kill)
    psutil.wait_procs(rest, timeout=grace_s)
    return [process for process in rest if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(send: object) -> None:
    assert callable(send)
    with contextlib.suppress(psutil.Error):
        send()

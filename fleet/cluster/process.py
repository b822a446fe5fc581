"""The benchmark as a process: started fresh with a clean environment, followed through its spool, ended with its group.

Nothing of Ray reaches it: its variables, thread limits and process group stay behind, so that the same command typed by
hand on that machine measures the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fleet.cluster.environment import clean_environment
from fleet.cluster.items import Order
from fleet.cluster.last_words import last_line
from worker.contract.condition import PresentCondition, condition_from_json
from worker.contract.private import own_directory, owner_only, write_own
from worker.contract.spool import LOG_FILE, PROGRESS_FILE, Progress


def worker_command(order: Order) -> tuple[str, ...]:
    """How the worker's command line begins: the order's, or that of the installation that runs this."""
    return order.worker_argv or (sys.executable, "-m", "worker.cli")


def ask_condition(order: Order, timeout_s: float = 60.0) -> PresentCondition:
    """The machine's present condition, as its own worker sees it. What it does not tell in time is unknown."""
    try:
        found = subprocess.run(
            [*worker_command(order), "condition"],
            env=clean_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return PresentCondition()
    return condition_from_json(found.stdout)


def command_line(order: Order, task_file: Path) -> list[str]:
    optional = {"--lock": order.lock, "--cache": order.cache}
    return [
        *worker_command(order),
        "run",
        str(task_file),
        *("--spool", str(order.directory)),
        *("--study-id", order.study_id),
        *("--attempt-id", order.attempt_id),
        *("--node", order.node),
        *("--parent-pid", str(os.getpid())),
        *(word for flag, path in optional.items() if path is not None for word in (flag, str(path.expanduser()))),
    ]


class BenchmarkProcess:
    """Owns one benchmark process and its process group."""

    def __init__(self, order: Order) -> None:
        """Write the task into the spool and start the process. Raises: OSError."""
        directory = order.directory
        own_directory(directory.parent)
        directory.mkdir(mode=0o700)
        task_file = directory / "task.json"
        write_own(task_file, order.task.to_json())
        self._log = directory / LOG_FILE
        self._progress = _Tail(directory / PROGRESS_FILE)
        with open(self._log, "wb", opener=owner_only) as log:
            self._process = subprocess.Popen(
                command_line(order, task_file),
                cwd=directory,
                env=clean_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, or None when the process still runs after `timeout_s`."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._signal_group(signal.SIGKILL)  # whatever the benchmark started and left behind
        return status

    def new_progress(self) -> list[Progress]:
        """The lines of progress since the last call; a line that is still being written waits for the next one."""
        found = []
        for line in self._progress.lines():
            try:
                found.append(Progress.from_json(line))
            except (ValueError, TypeError):
                continue  # a foreign line is no reason to lose a measurement
        return found

    def stop(self, grace_s: float) -> None:
        """End the process group: asked first, then killed."""
        if self._process.poll() is None:
            self._signal_group(signal.SIGTERM)
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._signal_group(signal.SIGKILL)
                self._process.wait()
        self._signal_group(signal.SIGKILL)

    def epitaph(self, status: int) -> str:
        """How a process ended that left no outcome: its signal or status, and the last line that it wrote."""
        last = last_line(self.log_tail(4096))
        return f"the benchmark process {_manner(status)}" + (f"; its last words: {last}" if last else "")

    def log_tail(self, limit_bytes: int = 65536) -> str:
        """The end of what the process wrote to standard output and error."""
        try:
            return self._log.read_bytes()[-limit_bytes:].decode("utf-8", errors="replace")
        except OSError:
            return ""

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # the group is gone; macOS answers EPERM for one that only holds zombies


class _Tail:
    """Reads a growing file of lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[str]:
        try:
            with self._path.open("rb") as handle:
                handle.seek(self._offset)
                data = handle.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.decode("utf-8", errors="replace").splitlines()


def _manner(status: int) -> str:
    if status >= 0:
        return f"ended with status {status} and no outcome"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"

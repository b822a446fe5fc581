"""The supervisor: what runs inside the Ray actor on a node. It starts, follows and ends the benchmark.

It measures nothing, and is a plain class, so that it is typed and testable without Ray. `run` and `stop` come from two
threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from fleet.cluster.items import (
    Advanced,
    Ended,
    Heartbeat,
    Item,
    LogItem,
    Order,
    Postponed,
    Started,
    TableItem,
    Vanished,
)
from fleet.cluster.process import BenchmarkProcess, ask_condition
from fleet.schedule.gates import Closed, check
from worker.contract.build import build_hash
from worker.contract.errors import StorageError
from worker.contract.outcome import Completed, Failed
from worker.contract.private import write_own
from worker.contract.spool import read_outcome, read_tables


class Supervisor:
    """Owns the benchmark process of one attempt."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._process: BenchmarkProcess | None = None
        self._guard = threading.Lock()
        self._stopped = False

    def run(self) -> Iterator[Item]:
        """Yield all that happens, at least an item every `heartbeat_s`; `Ended`, `Vanished` or `Postponed` comes last."""
        order = self._order
        if order.gates is not None and isinstance(answer := check(order.gates, ask_condition(order)), Closed):
            yield Postponed(attempt_id=order.attempt_id, reasons=answer.reasons)
            return
        try:
            with self._guard:
                if self._stopped:
                    return
                process = self._process = BenchmarkProcess(order)
        except OSError as error:
            yield Ended(attempt_id=order.attempt_id, outcome=_not_started(order, error))
            return
        try:
            yield Started(
                attempt_id=order.attempt_id, supervisor_pid=os.getpid(), pid=process.pid, build_hash=build_hash()
            )
            yield from self._follow(process)
        finally:
            process.stop(order.grace_s)

    def stop(self) -> None:
        """End the benchmark, if there is one; none starts afterwards."""
        with self._guard:
            self._stopped = True
            process = self._process
        if process is not None:
            process.stop(self._order.grace_s)

    def forget(self) -> None:
        """Remove the attempt's spool: the head has what it needs of it."""
        shutil.rmtree(self._order.directory, ignore_errors=True)

    def _follow(self, process: BenchmarkProcess) -> Iterator[Item]:
        order = self._order
        told = time.monotonic()
        status = None
        while status is None:
            status = process.wait(order.poll_s)
            for progress in process.new_progress():
                told = time.monotonic()
                yield Advanced(attempt_id=order.attempt_id, progress=progress)
            if time.monotonic() - told >= order.heartbeat_s:
                told = time.monotonic()
                yield Heartbeat(attempt_id=order.attempt_id)
        yield from self._result(process, status)

    def _result(self, process: BenchmarkProcess, status: int) -> Iterator[Item]:
        order = self._order
        yield LogItem(attempt_id=order.attempt_id, text=process.log_tail())
        outcome = read_outcome(order.directory)
        if outcome is None and _is_full(order.directory):
            yield Ended(attempt_id=order.attempt_id, outcome=_disk_full(order))
            return
        if outcome is None:
            yield Vanished(attempt_id=order.attempt_id, reason=process.epitaph(status))
            return
        if isinstance(outcome, Completed):
            try:
                tables = read_tables(order.directory)
            except (OSError, ValueError) as error:
                outcome = Failed(kind="permanent", error="SpoolError", message=str(error), hint="is the build equal?")
                tables = {}
            for name, table in tables.items():
                yield TableItem(attempt_id=order.attempt_id, name=name, table=table)
        yield Ended(attempt_id=order.attempt_id, outcome=outcome)


def _is_full(directory: Path) -> bool:
    """Whether the disk of a directory has no room for a few pages."""
    probe = directory / ".probe"
    try:
        write_own(probe, " " * 65536)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return False


def _disk_full(order: Order) -> Failed:
    """A benchmark that finds the disk full cannot leave its outcome there, either."""
    return Failed(
        kind="transient",
        error=StorageError.__name__,
        message=f"the disk of {order.directory} is full: the benchmark on {order.node} could not keep its results",
        hint="free some space there",
    )


def _not_started(order: Order, error: OSError) -> Failed:
    return Failed(
        kind="transient",
        error=StorageError.__name__,
        message=f"the benchmark could not be started in {order.directory}: {error.strerror or error}",
        hint="free some space there, or correct its permissions",
    )

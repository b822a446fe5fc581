"""Being told to end: SIGTERM and SIGHUP as clean a stop as Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP while the block lasts."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            previous[number] = signal.signal(number, interrupt)
    except ValueError:
        pass  # not the main thread: then the caller's signals are the caller's
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

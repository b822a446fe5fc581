"""Run a Python script whose clock on the wall is wrong; the monotonic one is right, as on a machine that was set wrong.

Not libfaketime: what Python sleeps by (clock_nanosleep to a moment) fails or never returns under it.

wrong_clock.py SECONDS PYTHON SCRIPT [WORD...]
"""

from __future__ import annotations

import datetime
import runpy
import sys
import time

SECONDS = float(sys.argv[1])
_time = time.time


class Wrong(datetime.datetime):
    """A `datetime` whose present is not ours."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return cls.fromtimestamp(time.time(), tz)


def main() -> None:
    time.time = lambda: _time() + SECONDS
    time.time_ns = lambda: int(time.time() * 1e9)
    sys.argv = sys.argv[3:]
    sys.path[0] = str(sys.argv[0].rpartition("/")[0])
    datetime.datetime = Wrong
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()

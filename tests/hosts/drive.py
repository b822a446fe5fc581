"""A driver as a process of its own: what `fleet serve` runs, with the synthetic worker on the hosts.

Ray's workers look for code in their driver's directories first, and all hosts share this disk: it is started elsewhere.

drive.py DATA INVENTORY [WORD...]      the words stand before the worker's command line
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleet.cluster.orders import Settings
from fleet.cluster.serve import serve
from fleet.cluster.signals import termination_as_interrupt
from fleet.cluster.site import Fleet
from fleet.errors import FleetError

SYNTHETIC_WORKER = (sys.executable, str(Path(__file__).parents[1] / "cluster/synthetic_worker.py"))


def main() -> int:
    data, inventory = Path(sys.argv[1]), Path(sys.argv[2])
    settings = Settings(
        worker_argv=(*sys.argv[3:], *SYNTHETIC_WORKER),
        spool=data / "spool",
        logs=data / "logs",
        grace_s=1.0,
        retry_pause=0.2,
    )
    try:
        with termination_as_interrupt():
            serve(
                data=data,
                site=Fleet(inventory, data),
                settings=settings,
                say=lambda text: print(text, file=sys.stderr, flush=True),
            )
    except FleetError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The head's long-running process: drive whatever the ledger asks for, over crashes of the cluster, until told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fleet.cluster.dispatch import Dispatcher
from fleet.cluster.live import LiveFile
from fleet.cluster.orders import Settings
from fleet.cluster.recover import recover_all
from fleet.cluster.site import Site
from fleet.cluster.watch import Watcher
from fleet.errors import ClusterError
from fleet.ledger.sqlite import Ledger, driving
from fleet.store.runs import RunStore

LONGEST_PAUSE_S = 60.0


def serve(
    *,
    data: Path,
    site: Site,
    settings: Settings,
    watcher: Watcher | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Drive every study of the data directory until interrupted.

    Raises: DriverBusyError; StorageError; InterruptedStudyError on Ctrl-C or SIGTERM.
    """
    store = RunStore(data / "store")
    store.prepare()
    with driving(data), Ledger(data) as ledger:
        pause_s = 1.0
        while True:
            recover_all(ledger=ledger, store=store, reason="its driver is gone", counted=True)
            began = time.monotonic()
            try:
                with site.connect() as cluster:
                    say("serving")
                    Dispatcher(
                        cluster=cluster,
                        ledger=ledger,
                        store=store,
                        settings=settings,
                        watcher=watcher,
                        live=LiveFile(data, serves=True),
                        say=say,
                    ).serve()
            except ClusterError as error:
                lasted = time.monotonic() - began
                pause_s = 1.0 if lasted > LONGEST_PAUSE_S else min(2 * pause_s, LONGEST_PAUSE_S)
                say(f"{error.message}; trying again in {pause_s:g} s")
                time.sleep(pause_s)

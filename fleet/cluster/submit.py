"""Submit a study: admit it, say which jobs it makes, and drive it to its end, unless another driver is at work."""

from __future__ import annotations

from pathlib import Path

from fleet.cluster.dispatch import Dispatcher
from fleet.cluster.live import LiveFile
from fleet.cluster.orders import Settings
from fleet.cluster.recover import recover
from fleet.cluster.site import Site
from fleet.cluster.submit_events import submission
from fleet.cluster.watch import Watcher
from fleet.ledger.sqlite import Ledger, driving, known_machines
from fleet.ledger.state import StudyState, is_open
from fleet.store.runs import RunStore
from fleet.study.study import Study, StudyId


def submit(study: Study, *, data: Path, site: Site, settings: Settings, watcher: Watcher | None = None) -> StudyState:
    """Run what is missing of a study; return its state when nothing is left to run.

    Done jobs stay done; one that failed, or was taken back, in an earlier submission is tried again.

    Raises: UsageError before anything runs; StorageError; ClusterError; InterruptedStudyError.
    """
    study, targets = site.ask(study, known_machines(data))  # before anything is made
    store = RunStore(data / "store")
    store.prepare()
    with driving(data), Ledger(data) as ledger:
        recover(study.id, ledger=ledger, store=store, reason="its driver is gone", counted=True)
        ledger.append(*submission(study, ledger.state(study.id), targets))
        if is_open(_state(ledger, study.id)):
            with site.connect() as cluster:
                Dispatcher(
                    cluster=cluster,
                    ledger=ledger,
                    store=store,
                    settings=settings,
                    only=study.id,
                    watcher=watcher,
                    live=LiveFile(data, serves=False),
                ).run()
        return _state(ledger, study.id)


def enqueue(study: Study, *, data: Path, site: Site) -> None:
    """Ask whoever drives the data directory for a study. Raises: UsageError when it fits no machine; StorageError."""
    study, targets = site.ask(study, known_machines(data))
    with Ledger(data) as ledger:
        ledger.append(*submission(study, ledger.state(study.id), targets))


def _state(ledger: Ledger, study_id: StudyId) -> StudyState:
    state = ledger.state(study_id)
    assert state is not None
    return state

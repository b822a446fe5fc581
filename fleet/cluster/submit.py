"""Submit a study: admit it, say which jobs it makes, and drive it to its end, unless another driver is at work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.cluster.admission import Admission, Targets, judge
from fleet.cluster.dispatch import Dispatcher, Settings
from fleet.cluster.recover import recover
from fleet.cluster.site import Site
from fleet.cluster.watch import Watcher
from fleet.ledger.events import Event, StudySubmitted, TaskPlanned
from fleet.ledger.sqlite import Ledger, driving
from fleet.ledger.state import Cancelled, Failed, StudyState, is_open
from fleet.nodes.job import job_id
from fleet.store.runs import RunStore
from fleet.study.study import Study, StudyId


def submit(study: Study, *, data: Path, site: Site, settings: Settings, watcher: Watcher | None = None) -> StudyState:
    """Run what is missing of a study; return its state when nothing is left to run.

    Done jobs stay done; one that failed, or was taken back, in an earlier submission is tried again.

    Raises: UsageError before anything runs; StorageError; ClusterError; InterruptedStudyError.
    """
    store = RunStore(data / "store")
    store.prepare()
    with driving(data), Ledger(data) as ledger:
        targets = site.targets(study, ledger.machines())
        recover(study.id, ledger=ledger, store=store, reason="its driver is gone", counted=True)
        ledger.append(*submission(study, ledger.state(study.id), targets))
        if is_open(_state(ledger, study.id)):
            with site.connect() as cluster:
                Dispatcher(
                    cluster=cluster,
                    ledger=ledger,
                    store=store,
                    settings=settings,
                    admission=Admission(judge(ledger.machines())),
                    only=study.id,
                    watcher=watcher,
                ).run()
        return _state(ledger, study.id)


def submission(study: Study, state: StudyState | None, targets: Targets | None = None) -> Sequence[Event]:
    """The events of asking for a study: itself, and a plan for each job that is new, failed or was taken back."""
    known = state.jobs if state else {}
    return [
        StudySubmitted(study_id=study.id, name=study.name, study=study.to_json()),
        *(
            TaskPlanned(study_id=study.id, task_id=task.id, position=position, target=target)
            for position, task in enumerate(study.tasks)
            for target in (targets or {}).get(task.id, (None,))
            if isinstance(known.get(job_id(task.id, target)), Failed | Cancelled | None)
        ),
    ]


def _state(ledger: Ledger, study_id: StudyId) -> StudyState:
    state = ledger.state(study_id)
    assert state is not None
    return state

"""Submit a study: admit it, settle what an earlier driver left, plan what is missing, run it on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.cluster.dispatch import Dispatcher, Settings
from fleet.cluster.head import embedded
from fleet.cluster.recover import recover
from fleet.cluster.watch import Watcher
from fleet.ledger.events import Event, StudySubmitted, TaskPlanned
from fleet.ledger.sqlite import Ledger, driving
from fleet.ledger.state import Failed, Planned, Retrying, StudyState
from fleet.nodes.fit import admit
from fleet.nodes.node import Node
from fleet.nodes.shape import read_shape
from fleet.store.runs import RunStore
from fleet.study.study import Study


def submit(study: Study, *, data: Path, node: Node, settings: Settings, watcher: Watcher | None = None) -> StudyState:
    """Run what is missing of a study on this machine; return its state when nothing is left to run.

    Done tasks stay done; a task that failed in an earlier submission is tried again.

    Raises: UsageError before anything runs; StorageError; ClusterError; InterruptedStudyError.
    """
    fit = admit(study.tasks, [node], read_shape(study.tasks[0].checkpoint))
    store = RunStore(data / "store")
    store.prepare()
    with driving(data), Ledger(data) as ledger:
        recover(study.id, ledger=ledger, store=store, reason="its driver is gone", counted=True)
        ledger.append(*submission(study, ledger.state(study.id)))
        state = ledger.state(study.id)
        assert state is not None
        if not state.count(Planned, Retrying):
            return state
        with embedded(node):
            return Dispatcher(
                study.id, nodes=[node], fit=fit, ledger=ledger, store=store, settings=settings, watcher=watcher
            ).run()


def submission(study: Study, state: StudyState | None) -> Sequence[Event]:
    """The events of asking for a study: itself, and a plan for each task that is new or that failed."""
    known = state.tasks if state else {}
    return [
        StudySubmitted(study_id=study.id, name=study.name, study=study.to_json()),
        *(
            TaskPlanned(study_id=study.id, task_id=task.id, position=position)
            for position, task in enumerate(study.tasks)
            if task.id not in known or isinstance(known[task.id], Failed)
        ),
    ]

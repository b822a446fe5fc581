"""The events of asking for a study: which jobs it makes, and which edition it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleet.cluster.admission import Targets
from fleet.ledger.events import Event, StudySubmitted, TaskPlanned
from fleet.ledger.state import Cancelled, Failed, StudyState
from fleet.nodes.job import job_id
from fleet.study.study import Study, StudyId


def submission(study: Study, state: StudyState | None, targets: Targets | None = None) -> Sequence[Event]:
    """The events of asking for a study: itself, and a plan for each job that is new, failed or was taken back."""
    known = state.jobs if state else {}
    study_id = study.id  # a hash over all tasks: not once per job
    planned = [
        TaskPlanned(study_id=study_id, task_id=task_id, position=position, target=target)
        for position, task_id in enumerate(task.id for task in study.tasks)
        for target in (targets or {}).get(task_id, (None,))
        if isinstance(known.get(job_id(task_id, target)), Failed | Cancelled | None)
    ]
    return [StudySubmitted(study_id=study_id, name=study.name, study=study.to_json()), *planned]


def latest_edition(study: Study, known: Collection[StudyId]) -> Study:
    """The study's latest edition that was submitted, the first when none was."""
    edition = 1
    while study.in_edition(edition + 1).id in known:
        edition += 1
    return study.in_edition(edition)


def next_edition(study: Study, known: Collection[StudyId]) -> Study:
    """The edition after the latest, the first when none was submitted."""
    latest = latest_edition(study, known)
    return latest.in_edition(latest.edition + 1) if latest.id in known else latest

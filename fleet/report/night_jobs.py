"""What became of a study's jobs in one night, in the words of the morning summary: from the states before and after."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.ledger.machines import MachineState
from fleet.ledger.state import Cancelled, Done, Failed, JobState, Planned, Retrying, Running, StudyState
from fleet.nodes.job import JobId, job_parts
from fleet.nodes.node import NodeName
from fleet.report.morning import JobEnd, JobFact

NOT_REACHED = "its turn did not come before the window closed"


def job_facts(
    after: StudyState,
    *,
    before: StudyState | None = None,
    labels: Mapping[JobId, str],
    machines: Mapping[NodeName, MachineState],
    ended: bool,
) -> list[JobFact]:
    """Every job of a study as it stood at the end of a night.

    `before`: of a study that was carried into the night, its state at the begin; only what changed since is told.
    `machines` says why a machine took no job.
    """
    facts = []
    for job, state in after.jobs.items():
        if before is not None and before.jobs.get(job) == state:
            continue
        machine = getattr(state, "node", None) or job_parts(job)[1]
        end, reason = _end(state, machines.get(machine) if machine else None, ended=ended)
        facts.append(JobFact(label=labels[job], machine=machine, end=end, reason=reason, carried=before is not None))
    return facts


def _end(state: JobState, machine: MachineState | None, *, ended: bool) -> tuple[JobEnd, str]:
    match state:
        case Done():
            return "done", ""
        case Failed(kind="lost"):
            return "lost", state.message
        case Failed():
            return "failed", state.message
        case Cancelled():
            return "cancelled", state.reason
        case Running():
            return "running", ""
        case Retrying() | Planned():
            return _open_end(state, machine, ended=ended)


def _open_end(state: Retrying | Planned, machine: MachineState | None, *, ended: bool) -> tuple[JobEnd, str]:
    reason = state.reason if isinstance(state, Retrying) else ""
    return ("postponed", reason or _idle_reason(machine) or NOT_REACHED) if ended else ("waiting", reason)


def _idle_reason(machine: MachineState | None) -> str | None:
    if machine is None:
        return None
    if machine.paused is not None:
        return f"the machine is paused: {machine.paused}"
    return f"the machine is left alone: {machine.quarantined_for}" if machine.quarantined_for else None

"""Targets: each task on every machine that fits, or once on any; a task that fits nowhere is refused with every reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.cluster.admission import Admission, targets_of
from fleet.cluster.book import Book
from fleet.cluster.site import ThisMachine
from fleet.cluster.submit_events import submission
from fleet.errors import UsageError
from fleet.ledger.events import MachineReported, Recorded, TaskPlanned
from fleet.ledger.machines import MachineState
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import StudyState, fold
from fleet.nodes.constraints import MachineFacts
from fleet.nodes.node import Node, NodeName
from fleet.study.study import Study
from worker.contract.task import CheckpointRef, Prompt, Task

SMALL, LARGE = Node(name=NodeName("small"), tags=("lab",)), Node(name=NodeName("large"))
KNOWN = {
    SMALL.name: MachineState(facts=MachineFacts(chip="Apple M2", memory_gb=16.0)),
    LARGE.name: MachineState(facts=MachineFacts(chip="Apple M4 Max", memory_gb=128.0)),
}
TASK = Task(checkpoint=CheckpointRef(source="demo"), prompts=(Prompt(id="a", category="c", text="t"),))
STUDY = Study(name="s", description="", tasks=(TASK,), path=Path("s.toml"))


def test_every_machine_runs_every_task_unless_any_may():
    assert targets_of(STUDY, [SMALL, LARGE], KNOWN) == {TASK.id: ["small", "large"]}
    assert targets_of(replace(STUDY, machines="any"), [SMALL, LARGE], KNOWN) == {TASK.id: (None,)}


@pytest.mark.parametrize(
    ("require", "expected"),
    [("chip = m4*", ["large"]), ("memory_gb < 64", ["small"]), ("tag = lab", ["small"]), ("name != small", ["large"])],
)
def test_what_a_study_requires_chooses_its_machines(require, expected):
    assert targets_of(replace(STUDY, require=(require,)), [SMALL, LARGE], KNOWN) == {TASK.id: expected}


def test_a_task_that_fits_nowhere_is_refused_with_the_reason_of_each_machine():
    with pytest.raises(UsageError) as caught:
        targets_of(replace(STUDY, require=("memory_gb >= 256",)), [SMALL, LARGE], KNOWN)
    assert "memory_gb of small is 16" in caught.value.message
    assert "memory_gb of large is 128" in caught.value.message
    with pytest.raises(UsageError, match="fits no machine: there is none"):
        targets_of(STUDY, [], KNOWN)


def test_an_impossible_pool_is_refused_with_the_arithmetic():
    with pytest.raises(UsageError, match="below the floor of 12"):
        ThisMachine(SMALL).ask(replace(STUDY, tasks=(TASK, replace(TASK, slots_per_layer=8))), KNOWN)


def test_on_this_machine_alone_nothing_is_required_and_a_job_has_no_name_in_it():
    study = replace(STUDY, require=("memory_gb >= 256",))
    assert ThisMachine(SMALL).ask(study, {}) == (replace(study, machines="any", require=()), {TASK.id: (None,)})


def _state(*studies) -> StudyState:
    events = [event for events in studies for event in events]
    return fold(STUDY.id, [Recorded(seq=i, at_s=1.0, event=event) for i, event in enumerate(events)])


def test_a_machine_that_came_later_gets_its_own_jobs_and_what_is_planned_stays():
    first = submission(STUDY, None, {TASK.id: [SMALL.name]})
    later = submission(STUDY, _state(first), {TASK.id: [SMALL.name, LARGE.name]})
    assert [event.target for event in later if isinstance(event, TaskPlanned)] == ["large"]


@pytest.mark.parametrize("asked", [STUDY, replace(STUDY, require=("memory_gb >= 256",))])
def test_what_this_machine_took_it_also_runs(tmp_path, asked):
    study, targets = ThisMachine(SMALL).ask(asked, {})
    with Ledger(tmp_path) as ledger:
        ledger.append(*submission(study, None, targets))
        book, admission = Book(ledger), Admission()
        admission.follow(book, [SMALL])
        (waiting,) = book.waiting()
        assert admission.fits(waiting.group, SMALL.name)


def test_what_is_learnt_of_a_machine_opens_it_to_a_study_that_waits(tmp_path):
    study = replace(STUDY, machines="any", require=("memory_gb >= 64",))
    with Ledger(tmp_path) as ledger:
        ledger.append(*submission(study, None))
        book, admission = Book(ledger), Admission()
        admission.follow(book, [LARGE])
        assert not admission.fits(next(iter(book.waiting())).group, LARGE.name)
        facts = {"memory_bytes": 128 * 2**30}
        book.append(MachineReported(machine=LARGE.name, facts=facts, build_hash="b"))
        admission.follow(book, [LARGE])
        assert admission.fits(next(iter(book.waiting())).group, LARGE.name)

"""A real Ray, started once for the tests of this folder, and studies for the synthetic worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.cluster.dispatch import Dispatcher
from fleet.cluster.head import embedded
from fleet.cluster.orders import Settings
from fleet.cluster.site import ThisMachine
from fleet.cluster.submit_events import submission
from fleet.cluster.watch import Watcher
from fleet.ledger.events import AttemptStarted, Event
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import StudyState
from fleet.nodes.node import Node, NodeName
from fleet.store.runs import RunStore
from fleet.study.study import Study
from worker.contract.task import CheckpointRef, Prompt, Protocol, Task

SYNTHETIC_WORKER = (sys.executable, str(Path(__file__).with_name("synthetic_worker.py")))


@pytest.fixture(scope="session")
def node() -> Node:
    return Node(name=NodeName("test-node"))


@pytest.fixture(scope="session")
def ray_cluster(node: Node) -> Iterator[Node]:
    with embedded(node):
        yield node


def make_study(*knobs: str, name: str = "synthetic") -> Study:
    """One task per text of knobs."""
    tasks = tuple(
        Task(
            checkpoint=CheckpointRef(source="demo"),
            prompts=(Prompt(id=f"p{index}", category="knobs", text=text or "plain"),),
            protocol=Protocol(repeats=2),
        )
        for index, text in enumerate(knobs)
    )
    return Study(name=name, description="", tasks=tasks, path=Path("synthetic.toml"))


@dataclass
class Bench:
    """One data directory on the running cluster."""

    data: Path
    node: Node
    seen: list[tuple[str, str]] = field(default_factory=list)

    @property
    def store(self) -> RunStore:
        return RunStore(self.data / "store")

    def settings(self, **changes) -> Settings:
        values = {"worker_argv": SYNTHETIC_WORKER, "spool": self.data / "spool", "retry_pause": 0.02, "grace_s": 0.5}
        return Settings(**{**values, **changes})

    def run(self, study: Study, *, watcher: Watcher | None = None, **changes) -> StudyState:
        with Ledger(self.data) as ledger:
            ledger.append(*submission(study, ledger.state(study.id)))
            Dispatcher(
                cluster=ThisMachine(self.node),
                ledger=ledger,
                store=self.store,
                settings=self.settings(**changes),
                only=study.id,
                watcher=watcher,
            ).run()
            state = ledger.state(study.id)
            assert state is not None
            return state

    def events(self, study: Study) -> list[Event]:
        with Ledger(self.data, read_only=True) as ledger:
            return [record.event for record in ledger.records(study.id)]

    def last(self, study: Study) -> str:
        """The id of the latest attempt."""
        return [event.attempt_id for event in self.events(study) if isinstance(event, AttemptStarted)][-1]

    def starts(self) -> int:
        return len((self.data / "runs.log").read_text().splitlines())


@pytest.fixture
def bench(ray_cluster: Node, tmp_path: Path) -> Bench:
    return Bench(data=tmp_path, node=ray_cluster)


@pytest.fixture
def knobs(tmp_path: Path) -> Callable[[str], str]:
    """The text of knobs with the marker folder of this test."""
    return lambda text: f"marker={tmp_path} {text}"

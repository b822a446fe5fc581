"""The stage of the fault tests: a study of the synthetic worker on the two hosts, driven by a process that can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fleet.cluster.live import LiveMachine, read_live
from fleet.cluster.site import Fleet as FleetSite
from fleet.cluster.submit import enqueue
from fleet.ledger.events import AttemptFailed, AttemptLost, StudyCancelled
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Done, Running, StudyState, is_open
from fleet.store.runs import RunStore
from fleet.study.study import Study
from tests.hosts.network import Fleet, Host
from worker.contract.task import CheckpointRef, Prompt, Protocol, Task


@dataclass
class Stage:
    """A study on the two hosts, and the process that drives it."""

    fleet: Fleet
    marker: Path
    data: Path
    worker: tuple[str, ...] = ()
    """Words before the synthetic worker's command line."""
    study: Study | None = None
    driver: subprocess.Popen[bytes] | None = None
    logs: list[Path] = field(default_factory=list)

    def ask(self, knobs: str, *, tasks: int = 4, machines: str = "any", name: str = "faults") -> None:
        prompts = [
            Prompt(id="p", category="k", text=f"marker={self.marker} lock=1 n={n} {knobs}") for n in range(tasks)
        ]
        made = tuple(
            Task(checkpoint=CheckpointRef(source="demo"), prompts=(prompt,), protocol=Protocol(repeats=2))
            for prompt in prompts
        )
        self.study = Study(name=name, description="", tasks=made, path=Path("s.toml"), machines=machines)  # type: ignore[arg-type]
        enqueue(self.study, data=self.data, site=FleetSite(self.fleet.inventory, self.data))

    def drive(self) -> None:
        log = self.marker / f"driver{len(self.logs)}.log"
        self.logs.append(log)
        script = Path(__file__).with_name("drive.py")
        with log.open("wb") as out:
            self.driver = subprocess.Popen(
                [sys.executable, script, self.data, self.fleet.inventory, *self.worker],
                stdout=out,
                stderr=out,
                cwd=self.marker,
            )

    def kill_driver(self) -> None:
        assert self.driver is not None
        self.driver.kill()
        self.driver.wait()

    def cancel(self) -> None:
        """Take the study back, and wait until nothing of it runs."""
        assert self.study is not None
        with Ledger(self.data) as ledger:
            ledger.append(StudyCancelled(study_id=self.study.id, reason="no need"))
        self.wait(lambda: not is_open(self.state), "the end of a cancelled study", 30)

    def machine(self, name: str) -> LiveMachine:
        """What the driver says of a machine now."""
        live = read_live(self.data)
        found = [machine for machine in live.machines if machine.name == name] if live else []
        return found[0] if found else LiveMachine(name=name, state="unknown")

    @property
    def state(self) -> StudyState:
        assert self.study is not None
        with Ledger(self.data, read_only=True) as ledger:
            state = ledger.state(self.study.id)
        assert state is not None
        return state

    def events(self) -> list:
        assert self.study is not None
        with Ledger(self.data, read_only=True) as ledger:
            return ledger.records(self.study.id)

    def running_on(self, host: Host) -> Running | None:
        found = [s for s in self.state.jobs.values() if isinstance(s, Running) and s.node == host.name]
        return found[0] if found else None

    def wait(self, question: Callable[[], object], what: str, timeout_s: float = 90) -> float:
        """Wait until it is so; return the seconds it took."""
        began = time.monotonic()
        while not question():
            told = self.logs[-1].read_text()[-2000:] if self.logs else ""
            assert time.monotonic() - began < timeout_s, f"did not come: {what}\n{told}\n{self.state.jobs}"
            time.sleep(0.2)
        return time.monotonic() - began

    def wait_for_work(self, host: Host) -> int:
        """Wait until a benchmark holds the host's lock; return its process."""

        def at_work() -> int | None:
            running = self.running_on(host)
            lines = self.starts()
            pids = [line["pid"] for line in lines if running and line["attempt"] == running.attempt_id]
            return pids[0] if pids and f"{host.name} " in self.spans() and f" {pids[0]} begin" in self.spans() else None

        self.wait(at_work, f"a benchmark on {host.name}")
        return at_work() or 0

    def starts(self) -> list[dict]:
        path = self.marker / "runs.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def spans(self) -> str:
        path = self.marker / "spans.log"
        return path.read_text() if path.exists() else ""

    def finish(self, timeout_s: float = 150) -> StudyState:
        """Wait for the end; every job is done, each stored once, and no two ran at once on a machine."""
        self.wait(lambda: not is_open(self.state), "the end of the study", timeout_s)
        state = self.state
        assert state.count(Done) == len(state.jobs), state.jobs
        assert self.study is not None
        rows = RunStore(self.data / "store").scan(self.study.id, state.done_attempts)["runs"]
        jobs = sorted(zip(rows.column("task_id").to_pylist(), rows.column("node").to_pylist(), strict=True))
        assert len(jobs) == len(state.jobs)
        assert len(set(rows.column("attempt_id").to_pylist())) == len(state.jobs)
        self.check_spans()
        return state

    def check_spans(self) -> None:
        """A machine's next benchmark begins after the last one ended, or after its process was gone (the lock says so)."""
        by_machine = defaultdict(list)
        for line in self.spans().splitlines():
            node, at_s, pid, what = line.split()
            by_machine[node].append((float(at_s), pid, what))
        for node, lines in by_machine.items():
            open_pid = None
            for _, pid, what in sorted(lines):
                if what == "end":
                    assert open_pid == pid, f"{node}: {pid} ended while {open_pid} held the machine"
                open_pid = pid if what == "begin" else None

    def failures(self) -> list[AttemptFailed]:
        return [record.event for record in self.events() if isinstance(record.event, AttemptFailed)]

    def losses(self) -> list[AttemptLost]:
        return [record.event for record in self.events() if isinstance(record.event, AttemptLost)]

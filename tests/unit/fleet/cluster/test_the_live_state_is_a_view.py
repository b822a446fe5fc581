"""The live file tells what its driver said last, for as long as that driver lives; the commands show why jobs wait."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap

from rich.console import Console

from fleet.cli.report import _open_tasks
from fleet.cli.watch import machines_table, studies_table
from fleet.cluster.live import LIVE_FILE, LiveFile, LiveMachine, read_live
from fleet.ledger.events import JobDropped, Recorded, StudySubmitted, TaskPlanned
from fleet.ledger.state import StudyState, fold
from fleet.study.study import Study
from worker.contract.task import CheckpointRef, Prompt, Task

IDLE = LiveMachine(name="mini", state="not ready", why="on battery")
TASK = Task(checkpoint=CheckpointRef(source="demo"), prompts=(Prompt(id="a", category="c", text="t"),))


def study(tmp_path, *events) -> StudyState:
    asked = Study(name="s", description="", tasks=(TASK,), path=tmp_path / "s.toml")
    first = [
        StudySubmitted(study_id=asked.id, name="s", study=asked.to_json()),
        TaskPlanned(study_id=asked.id, task_id=TASK.id, position=0),
    ]
    everything = [*first, *(event(asked.id) for event in events)]
    return fold(asked.id, [Recorded(seq=i, at_s=1.0, event=event) for i, event in enumerate(everything)])


def shown(picture) -> str:
    text = io.StringIO()
    Console(file=text, width=200).print(picture)
    return text.getvalue()


def test_what_was_told_is_read_until_the_driver_ends(tmp_path):
    now = [100.0]
    live = LiveFile(tmp_path, serves=True, clock=lambda: now[0])
    live.tell(lambda: [IDLE], {"s": "the window is closed"})
    found = read_live(tmp_path)
    assert found is not None
    assert (found.serves, found.at_s, found.machines, found.waits) == (
        True,
        100.0,
        (IDLE,),
        {"s": "the window is closed"},
    )
    now[0] += 0.5
    live.tell(list, {})
    assert read_live(tmp_path) == found  # a moment ago
    live.close()
    assert read_live(tmp_path) is None


def test_a_driver_that_was_killed_is_not_believed(tmp_path):
    code = f"""
        import os, signal
        from pathlib import Path
        from fleet.cluster.live import LiveFile
        LiveFile(Path({str(tmp_path)!r}), serves=False).tell(lambda: [], {{}})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert json.loads((tmp_path / LIVE_FILE).read_text())["serves"] is False
    assert read_live(tmp_path) is None


def test_why_a_machine_and_a_study_wait_is_shown(tmp_path):
    live = LiveFile(tmp_path, serves=True)
    state = study(tmp_path)
    live.tell(lambda: [IDLE], {str(state.study_id): "mini: the window is closed"})
    found = read_live(tmp_path)
    assert "on battery" in shown(machines_table(found, [state]))
    assert "mini: the window is closed" in shown(studies_table([state], found))


def test_a_dropped_job_is_no_open_one_in_a_report(tmp_path):
    dropped = study(tmp_path, lambda id_: JobDropped(study_id=id_, task_id=TASK.id, reason="mini is optional and away"))
    assert _open_tasks(dropped) == ["1 of 1 tasks were cancelled: mini is optional and away"]
    assert _open_tasks(study(tmp_path)) == ["1 of 1 tasks have not run yet"]

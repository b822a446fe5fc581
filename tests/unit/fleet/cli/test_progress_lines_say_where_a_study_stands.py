"""One line per machine: task, phase, repeat, rate, and a time left that follows from the share of the work done."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from fleet.cli.progress import Board, ending, watching
from fleet.cluster.watch import Count
from fleet.ledger.state import Done, Failed, Retrying, Tries
from fleet.nodes.node import NodeName
from worker.contract.spool import Progress
from worker.contract.task import CheckpointRef, Prompt, Task

MAC = NodeName("mac-1")
TASK = Task(
    checkpoint=CheckpointRef(source="demo"), prompts=(Prompt(id="p", category="c", text="t"),), slots_per_layer=32
)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_line_names_machine_task_phase_repeat_and_rate():
    board = Board(clock=Clock())
    board.begin(MAC, TASK, 1, Count(total=6, done=2, failed=0))
    assert board.text(MAC) == "mac-1  [3/6] width 3, slots 32  starting"
    board.advance(MAC, Progress(phase="speculative", fraction=0.5, prompt_id="docs", repeat=2, repeats=3, tok_s=18.25))
    assert board.text(MAC).startswith("mac-1  [3/6] width 3, slots 32  speculative 2/3  docs  18.2 tok/s")


def test_the_time_left_is_in_proportion_to_the_work_that_this_run_has_done():
    clock = Clock()
    board = Board(clock=clock)
    board.begin(MAC, TASK, 1, Count(total=4, done=2, failed=0))  # half was done by an earlier run
    assert board.left_s() is None
    clock.now_s = 10.0
    board.advance(MAC, Progress(phase="greedy", fraction=0.5))  # 1/8 of the study in 10 s, 3/8 to go
    assert board.left_s() == 30.0
    assert board.text(MAC).endswith("30 s left")


def test_too_little_work_gives_no_time_left():
    clock = Clock()
    board = Board(clock=clock)
    board.begin(MAC, TASK, 1, Count(total=4, done=0, failed=0))
    clock.now_s = 10.0
    board.advance(MAC, Progress(phase="load", fraction=0.01))
    assert board.left_s() is None


def test_without_a_terminal_there_is_one_plain_line_per_setup_phase_and_per_prompt():
    out = StringIO()
    with watching(Console(file=out, width=40)) as watcher:
        watcher.started(MAC, TASK, 2, Count(total=1, done=0, failed=0))
        watcher.progressed(MAC, Progress(phase="load", fraction=0.0))
        for repeat in (1, 2, 3):
            for phase in ("greedy", "speculative"):
                watcher.progressed(
                    MAC, Progress(phase=phase, fraction=0.1 * repeat, prompt_id="p", repeat=repeat, repeats=3)
                )
        watcher.progressed(MAC, Progress(phase="checks", fraction=0.4, prompt_id="p"))
        watcher.progressed(MAC, Progress(phase="greedy", fraction=0.5, prompt_id="q", repeat=1, repeats=3))
        watcher.progressed(MAC, Progress(phase="done", fraction=1.0))
        done = Done(tries=Tries(), attempt_id="x", node=MAC, rows={}, submit_to_start_s=None, measured_to_stored_s=None)
        watcher.ended(MAC, TASK, done, Count(total=1, done=1, failed=0))
    lines = out.getvalue().splitlines()
    assert len(lines) == 5
    assert "attempt 2" in lines[0]
    assert [word in line for word, line in zip(("load", "  p", "  q"), lines[1:4], strict=True)] == [True] * 3
    assert lines[4] == "mac-1  width 3, slots 32: done"
    assert "\x1b" not in out.getvalue()


def test_the_ending_of_an_attempt_says_why():
    failed = Failed(tries=Tries(), kind="permanent", error="E", message="no such file", hint="")
    assert ending(MAC, TASK, failed) == "mac-1  width 3, slots 32: failed: no such file"
    retrying = Retrying(tries=Tries(), reason="the machine is busy")
    assert ending(MAC, TASK, retrying) == "mac-1  width 3, slots 32: will be tried again: the machine is busy"

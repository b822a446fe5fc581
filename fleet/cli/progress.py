"""Progress on standard error: one live line per machine on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fleet.cli.text import task_label
from fleet.cluster.watch import Count, Watcher
from fleet.ledger.state import Done, Failed, JobState, Retrying
from fleet.nodes.node import NodeName
from fleet.spans import span
from worker.contract.spool import Progress
from worker.contract.task import Task

SETUP_PHASES = ("prepare", "verify", "load")
MIN_FRACTION = 0.03
"""Below this share of the work, the time left is a guess and is not told."""


@dataclass(slots=True)
class _Line:
    task: Task
    number: int
    progress: Progress | None = None


@dataclass(slots=True)
class Board:
    """What is known of a running study, and the words for it. `clock` is a monotonic clock in seconds."""

    clock: Callable[[], float] = time.monotonic
    lines: dict[NodeName, _Line] = field(default_factory=dict)
    count: Count = field(default_factory=lambda: Count(total=0, done=0, failed=0))
    _began_s: float | None = None
    _began_share: float = 0.0

    def begin(self, node: NodeName, task: Task, number: int, count: Count) -> None:
        self.count = count
        self.lines[node] = _Line(task, number)
        if self._began_s is None:
            self._began_s, self._began_share = self.clock(), self._share()

    def advance(self, node: NodeName, progress: Progress) -> None:
        if node in self.lines:
            self.lines[node].progress = progress

    def end(self, node: NodeName, count: Count) -> None:
        self.lines.pop(node, None)
        self.count = count

    def text(self, node: NodeName) -> str:
        """One line for one machine: which task, which phase, how fast, how long to go."""
        line = self.lines[node]
        progress = line.progress
        first = self.count.done + self.count.failed + 1
        parts = [f"{node}  [{min(first, self.count.total)}/{self.count.total}] {task_label(line.task)}"]
        if line.number > 1:
            parts.append(f"attempt {line.number}")
        if progress is None:
            parts.append("starting")
        else:
            parts.append(_phase(progress))
            if progress.prompt_id:
                parts.append(progress.prompt_id)
            if progress.tok_s is not None:
                parts.append(f"{progress.tok_s:.1f} tok/s")
        left_s = self.left_s()
        if left_s is not None:
            parts.append(f"{span(left_s)} left")
        return "  ".join(parts)

    def left_s(self) -> float | None:
        """The time left for the whole study, from the share of the work that this run has done so far."""
        if self._began_s is None:
            return None
        done = self._share() - self._began_share
        if done < MIN_FRACTION:
            return None
        return (self.clock() - self._began_s) * (1 - self._share()) / done

    def _share(self) -> float:
        running = sum(line.progress.fraction for line in self.lines.values() if line.progress)
        return min((self.count.done + self.count.failed + running) / max(self.count.total, 1), 1.0)


@contextmanager
def watching(console: Console) -> Iterator[Watcher]:
    """A watcher that writes to the console for as long as the block lasts."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=2, transient=True) as live:
            yield _LiveWatcher(live)
    else:
        yield _PlainWatcher(console)


class _LiveWatcher:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._board = Board()

    def started(self, node: NodeName, task: Task, number: int, count: Count) -> None:
        self._board.begin(node, task, number, count)
        self._draw()

    def progressed(self, node: NodeName, progress: Progress) -> None:
        self._board.advance(node, progress)
        self._draw()

    def ended(self, node: NodeName, task: Task, state: JobState, count: Count) -> None:
        self._board.end(node, count)
        self._live.console.print(Text(ending(node, task, state)))
        self._draw()

    def _draw(self) -> None:
        self._live.update(Group(*(Text(self._board.text(node), no_wrap=True) for node in self._board.lines)))


class _PlainWatcher:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._board = Board()
        self._told: dict[NodeName, tuple[str, str | None]] = {}

    def started(self, node: NodeName, task: Task, number: int, count: Count) -> None:
        self._board.begin(node, task, number, count)
        self._say(self._board.text(node))

    def progressed(self, node: NodeName, progress: Progress) -> None:
        self._board.advance(node, progress)
        # Within a prompt the paths alternate many times a second; a line for each would bury the log.
        phase = progress.phase if progress.phase in SETUP_PHASES else "measure"
        if progress.phase != "done" and self._told.get(node) != (phase, progress.prompt_id):
            self._told[node] = (phase, progress.prompt_id)
            self._say(self._board.text(node))

    def ended(self, node: NodeName, task: Task, state: JobState, count: Count) -> None:
        self._board.end(node, count)
        self._told.pop(node, None)
        self._say(ending(node, task, state))

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def ending(node: NodeName, task: Task, state: JobState) -> str:
    """The line that stays when an attempt is over."""
    match state:
        case Done():
            return f"{node}  {task_label(task)}: done"
        case Failed():
            return f"{node}  {task_label(task)}: failed: {state.message}"
        case Retrying():
            return f"{node}  {task_label(task)}: will be tried again: {state.reason}"
        case _:
            return f"{node}  {task_label(task)}: {type(state).__name__.lower()}"


def _phase(progress: Progress) -> str:
    if progress.repeat is not None and progress.repeats is not None:
        return f"{progress.phase} {progress.repeat}/{progress.repeats}"
    return f"{progress.phase} ({progress.detail})" if progress.detail else progress.phase

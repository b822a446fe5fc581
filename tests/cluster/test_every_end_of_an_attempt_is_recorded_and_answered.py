"""On a real Ray: results are stored once, failures are retried by their kind, and no end of a process goes unseen."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from fleet.cluster.watch import NobodyWatches
from fleet.ledger.events import AttemptCompleted, AttemptFailed, AttemptLost, AttemptStarted, StudyFinished
from fleet.ledger.state import Done, Failed
from fleet.schedule.deadlines import Limits
from fleet.schedule.retry import LIMITS
from worker.contract.schema import SCHEMAS

from .conftest import make_study

pytestmark = pytest.mark.cluster


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_two_tasks_run_one_after_the_other_and_their_rows_are_stored(bench, knobs):
    study = make_study(knobs(""), knobs("sleep=0.3"))
    state = bench.run(study)
    assert state.count(Done) == 2
    tables = bench.store.scan(study.id, state.done_attempts)
    assert set(tables["runs"].column("task_id").to_pylist()) == {task.id for task in study.tasks}
    assert tables["runs"].column("synthetic").to_pylist() == [True, True]
    assert tables["runs"].column("node").to_pylist() == ["test-node"] * 2
    assert {name: table.schema for name, table in tables.items()} == SCHEMAS
    kinds = [type(event) for event in bench.events(study)]
    assert kinds[-1] is StudyFinished
    assert kinds[3:-1] == [AttemptStarted, AttemptCompleted] * 2  # never two at once on one node
    for event in bench.events(study):
        if isinstance(event, AttemptCompleted):
            assert event.submit_to_start_s is not None
            assert event.measured_to_stored_s is not None
            assert event.rows["runs"] == 1
    assert list((bench.data / "spool").iterdir()) == []  # confirmed, so the node's copy is gone


def test_a_node_of_another_build_is_refused_and_its_benchmark_ended(bench, knobs, monkeypatch):
    monkeypatch.setattr("fleet.cluster.dispatch.build_hash", lambda: "0" * 16)
    study = make_study(knobs("sleep=30"))
    began = time.monotonic()
    state = bench.run(study)
    assert state.count(Failed) == 1
    failed = next(event for event in bench.events(study) if isinstance(event, AttemptFailed))
    assert (failed.kind, failed.error, failed.retry) == ("permanent", "BuildError", False)
    assert "this head runs 0000000000000000" in failed.message
    assert time.monotonic() - began < 20


def test_what_is_done_is_never_run_again(bench, knobs):
    study = make_study(knobs(""))
    bench.run(study)
    bench.run(study)
    assert bench.starts() == 1


def test_a_killed_benchmark_is_lost_with_its_signal_and_last_words_and_then_run_again(bench, knobs):
    study = make_study(knobs("crash=once"))
    state = bench.run(study)
    assert state.count(Done) == 1
    (lost,) = [event for event in bench.events(study) if isinstance(event, AttemptLost)]
    assert lost.reason == "the benchmark process was ended by SIGKILL; its last words: about to crash"
    assert lost.retry
    assert lost.counted
    assert bench.store.scan(study.id)["runs"].num_rows == 1


@pytest.mark.parametrize("kind", ["permanent", "transient", "lost"])
def test_a_failure_is_tried_again_as_often_as_its_kind_allows(bench, knobs, kind):
    study = make_study(knobs(f"fail={kind}"))
    state = bench.run(study)
    assert bench.starts() == 1 + LIMITS[kind]
    (failed,) = state.jobs.values()
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message, failed.hint) == (kind, f"told to fail ({kind})", "do not tell it")
    assert [event.retry for event in bench.events(study) if isinstance(event, AttemptFailed)] == (
        [True] * LIMITS[kind] + [False]
    )


def test_a_transient_failure_that_passes_ends_well_and_the_others_did_not_wait(bench, knobs):
    study = make_study(knobs("fail=transient fail_times=1"), knobs(""))
    state = bench.run(study)
    assert state.count(Done) == 2
    order = [event.task_id for event in bench.events(study) if isinstance(event, AttemptStarted)]
    first, second = (task.id for task in study.tasks)
    assert order == [first, second, first]


def test_a_failed_task_is_tried_again_when_the_study_is_submitted_again(bench, knobs):
    study = make_study(knobs("fail=permanent fail_times=1"))
    assert bench.run(study).count(Failed) == 1
    assert bench.run(study).count(Done) == 1


def test_rows_of_another_attempt_fail_for_good_and_are_not_stored(bench, knobs):
    study = make_study(knobs("rows=foreign"))
    (failed,) = bench.run(study).jobs.values()
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message) == (
        "permanent",
        f"runs.attempt_id is 'another', expected {bench.last(study)!r}",
    )
    assert bench.store.scan(study.id)["runs"].num_rows == 0


def test_a_table_of_another_schema_fails_for_good_and_is_not_stored(bench, knobs):
    study = make_study(knobs("schema=wrong"))
    (failed,) = bench.run(study).jobs.values()
    assert isinstance(failed, Failed)
    assert failed.kind == "permanent"
    assert "checks" in failed.message
    assert bench.store.scan(study.id)["runs"].num_rows == 0


def test_a_benchmark_that_hangs_is_ended_with_everything_it_started(bench, knobs):
    study = make_study(knobs("hang=1"))
    state = bench.run(study, limits=Limits(stall_s=1.5), heartbeat_s=0.3)
    (failed,) = state.jobs.values()
    assert isinstance(failed, Failed)
    assert failed.message == "the benchmark made no progress for 1.5 s"
    assert bench.starts() == 1 + LIMITS["lost"]
    for line in (bench.data / "runs.log").read_text().splitlines():
        assert gone(json.loads(line)["pid"])
    assert gone(int((bench.data / "child.pid").read_text()))


class _AtFirstProgress(NobodyWatches):
    """Does something to the first attempt's processes once it is at work."""

    def __init__(self, log: Path, act) -> None:
        self._log, self._act, self.line = log, act, {}

    def progressed(self, node, progress) -> None:
        if not self.line and self._log.exists():
            self.line = json.loads(self._log.read_text().splitlines()[0])
            self._act(self.line)


def test_a_supervisor_that_is_killed_is_a_lost_attempt(bench, knobs):
    study = make_study(knobs("sleep=1"))
    watcher = _AtFirstProgress(bench.data / "runs.log", lambda line: os.kill(line["parent"], signal.SIGKILL))
    state = bench.run(study, watcher=watcher)
    assert state.count(Done) == 1
    (lost,) = [event for event in bench.events(study) if isinstance(event, AttemptLost)]
    assert "its supervisor or its node is gone" in lost.reason


def test_a_supervisor_that_is_frozen_is_given_up_and_ended(bench, knobs):
    study = make_study(knobs("first_sleep=60"))
    watcher = _AtFirstProgress(bench.data / "runs.log", lambda line: os.kill(line["parent"], signal.SIGSTOP))
    state = bench.run(study, watcher=watcher, limits=Limits(silence_s=1.5), heartbeat_s=0.3)
    assert state.count(Done) == 1
    (lost,) = [event for event in bench.events(study) if isinstance(event, AttemptLost)]
    assert "no sign of life" in lost.reason
    assert gone(watcher.line["parent"])
    assert gone(watcher.line["pid"])


def test_the_benchmark_inherits_nothing_of_ray(bench, knobs):
    study = make_study(knobs("environment=1"))
    bench.run(study)
    seen = json.loads((bench.data / "environment.json").read_text())
    names = list(seen["environment"])
    assert [name for name in names if name.startswith("RAY") or name.endswith("_NUM_THREADS")] == []
    assert "CUDA_VISIBLE_DEVICES" not in names
    assert {"HOME", "PATH"} <= set(names)
    assert "ray" not in seen["modules"]
    assert seen["nice"] == os.nice(0)
    assert seen["leads"]  # a session of its own: Ctrl-C in the terminal never reaches it directly


def test_a_worker_that_cannot_be_started_is_a_failure_with_a_reason(bench, knobs):
    study = make_study(knobs(""))
    (failed,) = bench.run(study, worker_argv=(str(bench.data / "no-such-program"),)).jobs.values()
    assert isinstance(failed, Failed)
    assert "could not be started" in failed.message


def test_nothing_is_left_running_after_the_studies(bench, knobs):
    bench.run(make_study(knobs("")))
    assert threading.active_count() < 50
    line = json.loads((bench.data / "runs.log").read_text().splitlines()[0])
    assert gone(line["pid"])
    assert gone(line["parent"])


def test_a_log_that_cannot_be_kept_costs_nothing(bench, tmp_path):
    (tmp_path / "file").touch()
    state = bench.run(make_study("plain"), logs=tmp_path / "file" / "logs")
    assert state.count(Done) == 1

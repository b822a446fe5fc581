"""As a user does it: submit across machines, choose them by what they are, watch, queue for a server, and read the report.

The real worker measures the bundled model on the hosts.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.cluster.daemon import ensure_head
from fleet.cluster.live import read_live
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Done
from fleet.nodes.inventory import load_inventory
from tests.hosts.network import Fleet

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]

STUDY = """
name = "{name}"
{head}
[checkpoint]
source = "demo"
[prompts]
file = "prompts.jsonl"
[matrix]
verify_width = [{widths}]
[protocol]
max_tokens = 12
repeats = 2
"""


@pytest.fixture
def study(fleet: Fleet, tmp_path: Path):
    ensure_head(fleet.data, load_inventory(fleet.inventory).head)
    prompt = {"id": "code", "category": "code", "text": "def mean(values):\n    ", "chat": False}
    (tmp_path / "prompts.jsonl").write_text(json.dumps(prompt) + "\n")

    def write(name: str, head: str = "", widths: str = "3") -> str:
        path = tmp_path / f"{name}.toml"
        path.write_text(STUDY.format(name=name, head=head, widths=widths))
        return str(path)

    return write


def test_every_machine_measures_and_the_report_compares_them(fleet: Fleet, study):
    ended = fleet("submit", study("both", widths="2, 3"))
    assert ended.returncode == 0, ended.stderr
    assert "4 of 4 tasks done, 0 failed" in ended.stdout
    report = json.loads(report_of(fleet, "both"))
    assert sorted((row["machine"], row["verify_width"], row["exactness"]) for row in report["rows"]) == [
        (node, width, "identical") for node in ("host-a", "host-b") for width in (2, 3)
    ]
    status = json.loads(command(fleet, "status", "both", "--json"))
    assert sorted({task["target"] for task in status["tasks"]}) == ["host-a", "host-b"]


def test_what_a_study_requires_chooses_the_machine_and_what_fits_none_is_refused_with_reasons(fleet: Fleet, study):
    ended = fleet("submit", study("chosen", 'require = ["name = *-b", "tag = lab", "cpu_cores >= 1"]'))
    assert ended.returncode == 0, ended.stderr
    assert {row["machine"] for row in json.loads(report_of(fleet, "chosen"))["rows"]} == {"host-b"}
    refused = fleet("submit", study("huge", 'require = ["memory_gb >= 4096"]'))
    assert refused.returncode == 2
    assert "memory_gb of host-a is" in refused.stderr
    assert "memory_gb of host-b is" in refused.stderr
    unknown = fleet("submit", study("odd", 'require = ["memry_gb >= 1"]'))
    assert unknown.returncode == 2
    assert "did you mean 'memory_gb'?" in unknown.stderr
    plan = fleet("submit", study("plan"), "--dry-run")
    assert "2 tasks on host-a, host-b" in plan.stdout


@contextlib.contextmanager
def serving(fleet: Fleet) -> Iterator[Path]:
    """`fleet serve` as long as the block lasts; its log."""
    log = fleet.data / "serve.log"
    words = [sys.executable, "-m", "fleet.cli.main", "serve", "--data", fleet.data, "--inventory", fleet.inventory]
    with log.open("wb") as out:
        serve = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        wait(lambda: (live := read_live(fleet.data)) and live.serves, log)
        yield log
    finally:
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(60) == 130
    assert read_live(fleet.data) is None


def test_beside_a_server_a_submit_queues_follows_and_detaches(fleet: Fleet, study):
    where = ("--data", str(fleet.data), "--inventory", str(fleet.inventory))
    with serving(fleet) as log:
        followed = fleet("submit", study("followed"))
        assert followed.returncode == 0, followed.stderr
        assert "2 of 2 tasks done" in followed.stdout
        assert "done" in followed.stderr
        queued = fleet("submit", study("queued"), "--no-wait")
        assert "is queued" in queued.stdout
        wait(lambda: json.loads(command(fleet, "status", "queued", "--json"))["num_done"] == 2, log)
        assert {machine["name"] for machine in machines(fleet)} == {"host-a", "host-b"}
        detached = subprocess.Popen(
            [sys.executable, "-m", "fleet.cli.main", "submit", study("detached", widths="2, 3, 4"), *where],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        wait(lambda: running(fleet, "detached"), log)
        detached.send_signal(signal.SIGINT)
        _, told = detached.communicate(timeout=30)
        assert detached.returncode == 130
        assert "goes on" in told
        assert "cancelled" in command(fleet, "cancel", "detached")
        wait(lambda: not running(fleet, "detached"), log)
        second = fleet("serve")
        assert second.returncode == 3
        assert "is running studies there" in second.stderr


def test_a_closed_gate_holds_a_machine_back_with_its_reason_until_its_owner_gives_it_back(
    fleet: Fleet, study, tmp_path
):
    other_model = tmp_path / "ollama"
    shutil.copy("/bin/sleep", other_model)
    at_work = subprocess.Popen([other_model, "300"])
    gates = 'require = ["name = host-a"]\n[gates]\nquiet = true\n'
    try:
        with serving(fleet) as log:
            assert fleet("submit", study("quiet", gates), "--no-wait").returncode == 0
            wait(lambda: any(m["state"] == "not ready" for m in machines(fleet)), log)
            (held,) = [machine for machine in machines(fleet) if machine["state"] == "not ready"]
            assert (held["name"], held["why"]) == ("host-a", "ollama runs")
            at_work.kill()
            at_work.wait()
            assert fleet("machines", "resume", "host-a").returncode == 0
            wait(lambda: json.loads(command(fleet, "status", "quiet", "--json"))["num_done"] == 1, log)
    finally:
        at_work.kill()
        at_work.wait()


def test_a_scheduled_study_runs_by_itself_and_its_night_is_summed_up(fleet: Fleet, study):
    add = ("schedule", "add", study("night"), "--window", "00:00-24:00", "--timezone", "UTC", "--repeat", "once")
    assert "night" in command(fleet, *add)
    with serving(fleet) as log:
        wait(lambda: running(fleet, "night"), log)
        wait(lambda: json.loads(command(fleet, "status", "night", "--json"))["num_done"] == 2, log)
    told = command(fleet, "summary", "night")
    assert "host-a" in told
    assert "host-b" in told


def machines(fleet: Fleet) -> list[dict]:
    return json.loads(command(fleet, "status", "--json"))["machines"]


def test_the_head_keeps_an_attempt_s_log_and_says_what_the_fleet_cost_it(fleet: Fleet, study):
    """Fleet time of a task: until its process starts, and from its last measurement to its rows in the store."""
    assert fleet("submit", study("cost", 'require = ["name = host-a"]', widths="2, 3, 4")).returncode == 0
    with Ledger(fleet.data, read_only=True) as ledger:
        (state,) = [state for state in ledger.studies() if state.name == "cost"]
    done = [job for job in state.jobs.values() if isinstance(job, Done)]
    spans = [(job.submit_to_start_s or 0.0) + (job.measured_to_stored_s or 0.0) for job in done]
    print("fleet time per task:", ", ".join(f"{span:.2f} s" for span in spans))
    assert len(spans) == 3
    for attempt in state.done_attempts:
        kept = fleet.data / "logs" / f"{attempt}.log"
        assert not kept.exists() or command(fleet, "logs", attempt) == kept.read_text()
    assert list((fleet.a.root / "spool").iterdir()) == []  # the head has everything: nothing is left on the machine


def command(fleet: Fleet, *arguments: str) -> str:
    """A command that needs the data directory only."""
    words = [sys.executable, "-m", "fleet.cli.main", *arguments, "--data", str(fleet.data)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def report_of(fleet: Fleet, study: str) -> str:
    return command(fleet, "report", study, "--format", "json")


def running(fleet: Fleet, study: str) -> int:
    try:
        return json.loads(command(fleet, "status", study, "--json"))["num_running"]
    except AssertionError:
        return 0  # it is not in the ledger yet


def wait(question, log: Path, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.3)

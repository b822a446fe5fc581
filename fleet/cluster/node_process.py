"""What runs on a node for as long as it belongs to the fleet: one process that keeps Ray's part of the node running.

    python -m fleet.cluster.node_process ROOT/node.json             run, until SIGTERM
    python -m fleet.cluster.node_process --detach ROOT/node.json    start it in a session of its own
    python -m fleet.cluster.node_process --status ROOT/node.json    print what runs, as JSON
    python -m fleet.cluster.node_process --stop ROOT/node.json      end it with all it started; print what is left

Ray's node process ends when the head declared it dead or was away for a minute; this one waits for the head, for hours if
need be, and starts it again. It never loads Ray itself and sleeps nearly always: it shares the machine with a benchmark.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

import psutil

from fleet.cluster.processes import ProcessId, end, session_of
from fleet.cluster.settings import node_argv, process_environment

STATE_FILE = "node.pid"
LOG_FILE = "node.log"
LOG_BYTES = 1 << 20
"""Kept three times: the present log and two older ones."""
EXIT_BUSY = 4
GRACE_S = 6.0
_POLL_S = 1.0
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
_SETTLED_S = 60.0
"""A Ray that ran this long is no failed start: the next pause is the shortest again."""

log = logging.getLogger("node")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """`node.json`: everything that a node's process needs to know. `digest` names the installation beside it."""

    name: str
    head: str
    root: str
    ray_temp: str
    ports: tuple[int, int]
    build: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @property
    def token(self) -> Path:
        return Path(self.root) / "token"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True)

    @classmethod
    def read(cls, path: Path) -> NodeConfig:
        """Raises: OSError, ValueError, TypeError."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**values, "ports": (values["ports"][0], values["ports"][1])})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """`node.pid`: which process keeps the node, by which configuration, and the session of the Ray that it started last."""

    process: ProcessId
    config: str
    session: ProcessId | None = None

    @classmethod
    def read(cls, root: Path) -> NodeState | None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            values = json.loads((root / STATE_FILE).read_text(encoding="utf-8"))
            session = values["session"]
            return cls(
                process=ProcessId(**values["process"]),
                config=values["config"],
                session=ProcessId(**session) if session else None,
            )
        return None

    def write(self, root: Path) -> None:
        draft = root / f".{STATE_FILE}.tmp"
        draft.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")
        draft.replace(root / STATE_FILE)


class NodeProcess:
    """Owns the Ray of one root directory. `run` returns after `stop`."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._root = Path(config.root)
        self._stopping = threading.Event()
        self._state = NodeState(process=ProcessId.of(psutil.Process()), config=config.digest)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        """Clear what a killed predecessor left, then keep Ray running."""
        before = NodeState.read(self._root)
        if before and before.session:
            end([before.session], grace_s=GRACE_S)
        self._remember(None)
        log.info("node %s begins, niceness %d", self._config.name, os.getpriority(os.PRIO_PROCESS, 0))
        failures = 0
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                reason = self._run_ray()
                failures = 0 if time.monotonic() - began > _SETTLED_S else failures + 1
                pause_s = _PAUSES_S[min(failures, len(_PAUSES_S)) - 1] if failures else _PAUSES_S[0]
                log.info("%s; again in %g s", reason, pause_s)
                self._stopping.wait(pause_s)
        finally:
            log.info("node %s ends", self._config.name)
            (self._root / STATE_FILE).unlink(missing_ok=True)

    def _run_ray(self) -> str:
        """Run Ray once, if the head is there; return why it is over."""
        address = own_address(self._config.head)
        if address is None:
            return f"the head at {self._config.head} does not answer"
        try:
            process = self._start(address)
        except OSError as error:
            return f"Ray could not be started: {error}"
        leader = ProcessId.of(psutil.Process(process.pid))
        self._remember(leader)
        log.info("Ray starts as process %d at %s", process.pid, address)
        try:
            while process.poll() is None and not self._stopping.wait(_POLL_S):
                pass
        finally:
            end([leader], grace_s=GRACE_S)
            process.wait()
        return f"Ray ended with status {process.returncode}"

    def _start(self, address: str) -> subprocess.Popen[bytes]:
        config = self._config
        make_private(Path(config.ray_temp))
        process = subprocess.Popen(
            node_argv(head=config.head, address=address, name=config.name, ports=config.ports, temp=config.ray_temp),
            env=process_environment(config.token),
            cwd=self._root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        threading.Thread(target=_copy_lines, args=(process.stdout,), daemon=True).start()
        return process

    def _remember(self, session: ProcessId | None) -> None:
        self._state = dataclasses.replace(self._state, session=session)
        self._state.write(self._root)


def own_address(head: str) -> str | None:
    """The address of this machine on the way to the head, or None while the head does not answer."""
    host, _, port = head.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as connection:
        return str(connection.getsockname()[0])
    return None


def make_private(directory: Path) -> None:
    """A directory in a place that all users can write to, for us alone. Raises: OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat(follow_symlinks=False)
    if found.st_uid != os.getuid() or directory.is_symlink():
        raise PermissionError(f"{directory} belongs to another user")
    directory.chmod(0o700)


def _copy_lines(stream: IO[bytes]) -> None:
    for line in stream:
        log.info("ray: %s", line.decode("utf-8", errors="replace").rstrip())


def status(config: NodeConfig) -> dict[str, Any]:
    """What runs for this root now."""
    state = NodeState.read(Path(config.root))
    process = state.process.find() if state else None
    session = session_of(state.session) if state and state.session else []
    return {
        "running": process is not None,
        "current": process is not None and state is not None and state.config == config.digest,
        "pid": process.pid if process else None,
        "niceness": process.nice() if process else None,
        "ray_processes": len(session),
        "head_answers": own_address(config.head) is not None,
    }


def stop(config: NodeConfig) -> dict[str, Any]:
    """End the node's process and all it started; say whether it ran, and which processes of its root are left."""
    root = Path(config.root)
    state = NodeState.read(root)
    ran = False
    if state:
        ran = state.process.find() is not None
        if process := state.process.find():
            process.terminate()
            psutil.wait_procs([process], timeout=3 * GRACE_S)
        end([leader for leader in (state.session, state.process) if leader], grace_s=GRACE_S)
        (root / STATE_FILE).unlink(missing_ok=True)
    shutil.rmtree(config.ray_temp, ignore_errors=True)
    return {"ran": ran, "left": [f"{process.pid} {_title(process)}" for process in _still_using(root)]}


def _still_using(root: Path) -> list[psutil.Process]:
    """Processes that run a program below the root, but for this one and those that started it."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            inside = any(word.startswith(f"{root}/venv/") for word in process.cmdline()[:1])
            if process.pid not in own and inside and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()[:4])[:120]
    except psutil.Error:
        return "(gone)"


def _detach(path: Path, config: NodeConfig) -> int:
    """Start the process in a session of its own, and wait until it has begun."""
    root = Path(config.root)
    with (root / "start.log").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleet.cluster.node_process", str(path)],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    while process.poll() is None:
        state = NodeState.read(root)
        if state and state.process.pid == process.pid:
            return 0
        time.sleep(0.05)
    print((root / "start.log").read_text(errors="replace").strip(), file=sys.stderr)
    return process.returncode or 1


def _run(config: NodeConfig) -> int:
    from filelock import FileLock, Timeout

    root = Path(config.root)
    handler = RotatingFileHandler(root / LOG_FILE, maxBytes=LOG_BYTES, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    lock = FileLock(root / "node.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        print(f"another process keeps the node of {root}", file=sys.stderr)
        return EXIT_BUSY
    with lock:
        node = NodeProcess(config)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: node.stop())
        node.run()
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Raises: nothing for a configuration that can't be read; it is told in one line, with status 2."""
    parser = argparse.ArgumentParser(prog="node_process", description="Keep this machine in the fleet.")
    modes = parser.add_mutually_exclusive_group()
    for mode in ("detach", "status", "stop"):
        modes.add_argument(f"--{mode}", action="store_true")
    parser.add_argument("config", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        config = NodeConfig.read(chosen.config)
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"{chosen.config}: cannot be used: {error}", file=sys.stderr)
        return 2
    if chosen.status or chosen.stop:
        print(json.dumps(stop(config) if chosen.stop else status(config)))
        return 0
    return _detach(chosen.config, config) if chosen.detach else _run(config)


if __name__ == "__main__":
    sys.exit(main())

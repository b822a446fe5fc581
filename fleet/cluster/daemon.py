"""The head as a process that outlives commands: Ray's head, started once, found again, restarted when it is gone.

`DATA/cluster.json` says where it is, `DATA/token` opens it and stays the same over restarts, so that machines which were
brought up find their way back by themselves. Ray listens on every address of this machine; the token keeps others out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from fleet.cluster.last_words import last_line
from fleet.cluster.processes import ProcessId, end
from fleet.cluster.settings import (
    CLUSTER_ENVIRONMENT,
    HOST_LABEL,
    TOKEN_VARIABLE,
    head_argv,
    process_environment,
    variables,
)
from fleet.cluster.token import check_token, keep_token
from fleet.errors import ClusterError, StorageError
from fleet.nodes.inventory import Head
from fleet.nodes.node import NodeName
from worker.contract.private import own_directory, owner_only, replace_own

CLUSTER_FILE = "cluster.json"
TOKEN_FILE = "token"  # noqa: S105 - the name of a file
LOG_FILE = "head.log"
START_DEADLINE_S = 90.0
GRACE_S = 6.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """A head that was started: where it listens, what opens it, and its first process, whose session holds the others."""

    address: str
    asked_for: str
    token: Path
    temp: Path
    leader: ProcessId

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


def ensure_head(data: Path, head: Head) -> ClusterInfo:
    """Start the head unless it runs already as asked for. Changes nothing then.

    Raises: ClusterError when it can't be started; StorageError when the data directory can't be written.
    """
    from filelock import FileLock

    try:
        own_directory(data)
        check_token(data / TOKEN_FILE)
        with FileLock(data / "cluster.lock", mode=0o600):
            info = read_cluster(data)
            if info and info.asked_for == _asked_for(head) and is_alive(info):
                return info
            stop_head(data)
            return _start(data, head)
    except OSError as error:
        raise StorageError(f"{data}: cannot be written: {error.strerror or error}", "choose another --data") from error


def read_cluster(data: Path) -> ClusterInfo | None:
    """What `cluster.json` says, or None when there is none that can be read. Its processes may be gone."""
    try:
        values = json.loads((data / CLUSTER_FILE).read_text(encoding="utf-8"))
        return ClusterInfo(
            address=values["address"],
            asked_for=values["asked_for"],
            token=Path(values["token"]),
            temp=Path(values["temp"]),
            leader=ProcessId(**values["leader"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def is_alive(info: ClusterInfo) -> bool:
    """Its first process lives (it ends with any other of the head's) and its port answers."""
    return info.leader.find() is not None and _answers(info.host, info.port)


def stop_head(data: Path) -> bool:
    """End exactly the processes that were recorded, and what they started. Returns whether there were any.

    Raises: ClusterError when one of them cannot be ended.
    """
    info = read_cluster(data)
    if info is None:
        return False
    lived = info.leader.find() is not None
    left = end([info.leader], grace_s=GRACE_S)
    if left:
        raise ClusterError(f"the head's process {left[0].pid} cannot be ended", "end it, then try again")
    shutil.rmtree(info.temp, ignore_errors=True)
    (data / CLUSTER_FILE).unlink(missing_ok=True)
    return lived


@contextlib.contextmanager
def attached(info: ClusterInfo) -> Iterator[None]:
    """Be a driver of the cluster as long as the block lasts. Raises: ClusterError when it does not answer."""
    import logging

    with variables({**CLUSTER_ENVIRONMENT, TOKEN_VARIABLE: str(info.token)}):
        import ray

        try:
            ray.init(
                address=info.address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address=info.host,
            )
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ClusterError(f"the head at {info.address} does not answer: {reason}", "fleet up starts it") from error
        try:
            yield
        finally:
            ray.shutdown()


def present() -> frozenset[NodeName]:
    """The machines whose Ray is alive now, by the label that the inventory's name gave them. For an attached driver."""
    return frozenset(present_ids())


def present_ids() -> dict[NodeName, frozenset[str]]:
    """The same with Ray's ids: a machine whose Ray was started again has another one."""
    import ray

    found: dict[NodeName, frozenset[str]] = {}
    for node in ray.nodes():
        name = (node.get("Labels") or {}).get(HOST_LABEL)
        if node["Alive"] and name:
            found[NodeName(name)] = found.get(NodeName(name), frozenset()) | {node["NodeID"]}
    return found


def _start(data: Path, head: Head) -> ClusterInfo:
    _check_address(head)
    token = keep_token(data / TOKEN_FILE)
    temp = _temp(data)
    shutil.rmtree(temp, ignore_errors=True)
    temp.mkdir(mode=0o700)
    with open(data / LOG_FILE, "wb", opener=owner_only) as log:
        process = subprocess.Popen(
            head_argv(address=head.address, port=head.port, ports=head.ports, temp=str(temp)),
            env=process_environment(token),
            cwd=temp,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    leader = ProcessId.of(psutil.Process(process.pid))
    info = ClusterInfo(
        address=f"{head.address}:{head.port}", asked_for=_asked_for(head), token=token, temp=temp, leader=leader
    )
    _write(data, info)  # before it is ready: whoever is killed now leaves a head that can be found and ended
    try:
        address = _wait_until_ready(process, temp / "ray_current_cluster", data / LOG_FILE)
    except BaseException:
        stop_head(data)
        raise
    info = dataclasses.replace(info, address=address)
    _write(data, info)
    return info


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Path, log: Path) -> str:
    """The address at which it listens: a loopback address is replaced by Ray with the machine's own."""
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ClusterError(f"the head could not be started: {_last_words(log)}", f"see {log}")
        with contextlib.suppress(OSError):
            if address := ready.read_text(encoding="utf-8").strip():
                return address
        time.sleep(_POLL_S)
    raise ClusterError(f"the head was not ready after {START_DEADLINE_S:g} s", f"see {log}")


def _last_words(log: Path) -> str:
    try:
        text = log.read_bytes()[-8192:].decode("utf-8", errors="replace")
    except OSError:
        return "it left no log"
    return last_line(text, "it said nothing")


def _check_address(head: Head) -> None:
    """Raises: ClusterError when the address is not this machine's, or the port is taken."""
    where = f"{head.address}:{head.port}"
    try:
        found = socket.getaddrinfo(head.address, head.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], found[1]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[4])
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise ClusterError(
                f"the head cannot listen at {where}: {error.strerror}",
                "set head.address in fleet.toml to an address of this machine",
            ) from error
        raise ClusterError(
            f"the head cannot listen at {where}: another program does", "end it, or set head.port in fleet.toml"
        ) from error


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=2):
        return True
    return False


def _asked_for(head: Head) -> str:
    return f"{head.address}:{head.port} {head.ports[0]}-{head.ports[1]}"


def _temp(data: Path) -> Path:
    """Short, because of Ray's sockets; one for each data directory."""
    digest = hashlib.sha256(str(data.absolute()).encode()).hexdigest()[:8]
    return Path("/tmp") / f"frh_{digest}"  # noqa: S108 - made with mode 0700


def _write(data: Path, info: ClusterInfo) -> None:
    values = dataclasses.asdict(info) | {"token": str(info.token), "temp": str(info.temp)}
    replace_own(data / CLUSTER_FILE, json.dumps(values, indent=2))

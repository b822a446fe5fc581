"""The embedded cluster: a private Ray on this machine for as long as one command runs.

It listens on the loopback address only, is opened by a token that nobody else can read, keeps its files in a directory
of its own, and takes both away at the end. What a killed predecessor left behind is cleared first.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from fleet.cluster.settings import (
    HOST_LABEL,
    OBJECT_STORE_BYTES,
    RAY_ENVIRONMENT,
    SLOT_RESOURCE,
    TOKEN_VARIABLE,
    variables,
)
from fleet.cluster.signals import termination_as_interrupt
from fleet.cluster.token import write_token
from fleet.errors import ClusterError
from fleet.nodes.node import Node
from worker.contract.private import write_own

PREFIX = "fr-"
"""Short, because Ray puts sockets below it and a socket's path may have at most 103 bytes."""
PIDS_FILE = "processes.json"


@contextlib.contextmanager
def embedded(node: Node) -> Iterator[None]:
    """Run a Ray of one node, this machine, while the block lasts.

    Raises: ClusterError when Ray does not start.
    """
    sweep()
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=_short_temp()))
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        cleanup.enter_context(variables({**RAY_ENVIRONMENT, TOKEN_VARIABLE: str(write_token(directory / "token"))}))
        cleanup.callback(_shut_down)
        _start(node, directory)
        cleanup.enter_context(termination_as_interrupt())
        yield


def _start(node: Node, directory: Path) -> None:
    import ray

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        ray.init(
            address="local",
            num_cpus=1,
            num_gpus=0,
            resources={SLOT_RESOURCE: 1},
            labels={HOST_LABEL: node.name},
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(directory / "ray"),
            _node_ip_address="127.0.0.1",
        )
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        message = f"Ray could not be started on this machine: {reason}"
        raise ClusterError(message, "end other Ray processes, or try again") from error
    # With their children: Ray's agents outlive a killed raylet by more than a minute.
    processes = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    known = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            known.append([process.pid, process.create_time()])
    write_own(directory / PIDS_FILE, json.dumps(known))


def _shut_down() -> None:
    if "ray" in sys.modules:
        import ray

        ray.shutdown()


def _short_temp() -> str:
    return "/tmp" if Path("/tmp").is_dir() else tempfile.gettempdir()  # noqa: S108 - see PREFIX; mkdtemp is private


def sweep() -> None:
    """Clear what a killed driver left behind: its files, and its Ray processes where the system did not end them."""
    for directory in Path(_short_temp()).glob(f"{PREFIX}*-*"):
        owner = directory.name.removeprefix(PREFIX).split("-")[0]
        try:
            if directory.stat().st_uid != os.getuid() or not owner.isdecimal() or psutil.pid_exists(int(owner)):
                continue
            left: list[list[Any]] = json.loads((directory / PIDS_FILE).read_text())
        except (OSError, ValueError):
            left = []
        for pid, created in left:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.create_time() == created:
                    process.kill()
        shutil.rmtree(directory, ignore_errors=True)

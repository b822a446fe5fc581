"""How this fleet runs Ray, in one place: the variables and the flags of the embedded cluster, of the head and of a node.

Ray's processes read these variables from the environment that they inherit. Nobody's own RAY_* variables get through.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleet.cluster.environment import clean_environment

HOST_LABEL = "host"
SLOT_RESOURCE = "bench_slot"
OBJECT_STORE_BYTES = 128 << 20
"""Tables are small; Ray's default would take gigabytes from the benchmark."""

RAY_ENVIRONMENT: Mapping[str, str] = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's default of 15 would be inherited by the benchmark
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
CLUSTER_ENVIRONMENT: Mapping[str, str] = {
    **RAY_ENVIRONMENT,
    # A machine that is cut off or frozen is found dead after 12 to 21 s; with Ray's defaults after more than a minute.
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    # A head that was away keeps nothing: a node that waited for it longer than the head waits for a node gains nothing.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "25",
}
TOKEN_VARIABLE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable


def process_environment(token: Path) -> dict[str, str]:
    """The whole environment of a head's or a node's Ray."""
    return {**clean_environment(os.environ), **CLUSTER_ENVIRONMENT, TOKEN_VARIABLE: str(token)}


def head_argv(*, address: str, port: int, ports: tuple[int, int], temp: str) -> list[str]:
    """The command that runs the head's Ray in the foreground. It offers no CPU: nothing is measured on the head."""
    return [
        *_start(temp, ports),
        "--head",
        f"--node-ip-address={address}",
        f"--port={port}",
        "--num-cpus=0",
        "--include-dashboard=false",
    ]


def node_argv(*, head: str, address: str, name: str, ports: tuple[int, int], temp: str) -> list[str]:
    """The command that runs a node's Ray in the foreground: one slot, so one task at a time."""
    return [
        *_start(temp, ports),
        f"--address={head}",
        f"--node-ip-address={address}",
        "--num-cpus=1",
        f"--resources={json.dumps({SLOT_RESOURCE: 1})}",
        f"--labels={HOST_LABEL}={name}",
    ]


def _start(temp: str, ports: tuple[int, int]) -> Sequence[str]:
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
        "--num-gpus=0",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        f"--temp-dir={temp}",
        f"--min-worker-port={ports[0]}",
        f"--max-worker-port={ports[1]}",
        "--disable-usage-stats",
        "--include-log-monitor=false",
        "--log-color=false",
    ]


@contextlib.contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for this process and what it starts, as long as the block lasts."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

"""The machines of tests/hosts, made once: two namespaces, and a fleet that is brought up on them from nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.cluster.daemon import ensure_head
from fleet.nodes.inventory import load_inventory
from tests.hosts.network import SSHD, Fleet, Host, Hosts, make_key, run, start_host
from tests.hosts.stage import Stage


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Two machines, `a` and `b`, that answer over ssh and have nothing of the fleet on them."""
    missing = [word for word in (SSHD, "ip", "ssh", "ssh-keygen") if not shutil.which(word)]
    assert os.geteuid() == 0, "the tests of tests/hosts make network namespaces: run them as root"
    assert not missing, f"the tests of tests/hosts need {missing}: apt-get install openssh-server iproute2"
    mark = f"{os.getpid() % 10000:04d}"
    subnet = f"10.77.{os.getpid() % 250}"
    with contextlib.ExitStack() as cleanup:
        folder = Path(tempfile.mkdtemp(prefix="fleet-hosts-", dir="/tmp"))
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        bridge = f"fbr{mark}"
        run("ip", "link", "add", bridge, "type", "bridge")
        cleanup.callback(run, "ip", "link", "del", bridge)
        run("ip", "addr", "add", f"{subnet}.1/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        key = make_key(folder / "key")
        small_disk = folder / "small"
        small_disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small_disk)
        cleanup.callback(run, "umount", "-l", small_disk)
        found = Hosts(
            folder=folder,
            address=f"{subnet}.1",
            key=key,
            known_hosts=folder / "known_hosts",
            small_disk=small_disk,
            head_port=7000 + os.getpid() % 1000,
        )
        for number, name in enumerate("ab"):
            host = Host(
                name=f"host-{name}",
                namespace=f"fns{mark}{name}",
                address=f"{subnet}.{10 + number}",
                folder=folder / name,
                ray_temp=Path(f"/tmp/fr_{mark}{name}"),
            )
            host.folder.mkdir()
            cleanup.callback(shutil.rmtree, host.ray_temp, ignore_errors=True)
            start_host(host, found, bridge, f"v{mark}{name}", cleanup)
            found.machines.append(host)
        yield found


@pytest.fixture(scope="session")
def fleet(hosts: Hosts) -> Iterator[Fleet]:
    """Both machines brought up once, from nothing."""
    from fleet.cluster.daemon import stop_head

    found = Fleet(hosts=hosts, data=hosts.folder / "data", inventory=hosts.inventory("inventory", *hosts.machines))
    try:
        began = time.monotonic()
        found.first_up = found("up")
        found.seconds = time.monotonic() - began
        yield found
    finally:
        stop_head(found.data)


@pytest.fixture
def stage(fleet: Fleet, tmp_path: Path) -> Iterator[Stage]:
    ensure_head(fleet.data, load_inventory(fleet.inventory).head)
    found = Stage(fleet=fleet, marker=tmp_path, data=fleet.data)
    yield found
    if found.driver is not None and found.driver.poll() is None:
        found.driver.terminate()
        found.driver.wait(60)
    for host in (fleet.a, fleet.b):
        resumed = fleet("machines", "resume", host.name)
        assert resumed.returncode == 0, resumed.stderr

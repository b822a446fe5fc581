"""Real hosts on one machine: network namespaces on a bridge, an sshd in each, and a fleet that is brought up over ssh.

Needs root, iproute2 and openssh-server, and fails with that sentence where one of them is missing. Everything is ended by
process id and removed afterwards. The head runs outside the namespaces, at the bridge's address.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SSHD = "/usr/sbin/sshd"
SSH_PORT = 2222


@dataclass
class Host:
    """One machine: a namespace with its address, its sshd, and the folder that holds all its files."""

    name: str
    namespace: str
    address: str
    folder: Path
    ray_temp: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def programs(self) -> Path:
        """The first place where its commands are looked for."""
        return self.folder / "bin"

    def pids(self) -> list[int]:
        """Every process in the namespace."""
        printed = run("ip", "netns", "pids", self.namespace).stdout
        return [int(word) for word in printed.split()]

    def end(self) -> None:
        for _ in range(100):
            pids = [pid for pid in self.pids() if not is_zombie(pid)]
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        raise RuntimeError(f"processes are left in {self.namespace}: {self.pids()}")


@dataclass
class Hosts:
    """The network, the keys and the machines."""

    folder: Path
    address: str
    key: Path
    known_hosts: Path
    small_disk: Path
    head_port: int
    machines: list[Host] = field(default_factory=list)

    def inventory(self, name: str, *hosts: Host, **texts: str) -> Path:
        """Write an inventory; a text named after a machine takes the place of that machine's file."""
        folder = self.folder / name
        (folder / "machines").mkdir(parents=True, exist_ok=True)
        (folder / "fleet.toml").write_text(
            f'[head]\naddress = "{self.address}"\nport = {self.head_port}\nport_range = [24000, 24999]\n'
            f'[ssh]\nuser = "root"\nport = {SSH_PORT}\nkey = "{self.key}"\nknown_hosts = "{self.known_hosts}"\n'
            f"connect_timeout_s = 5\n"
        )
        for host in hosts:
            (folder / "machines" / f"{host.name}.toml").write_text(machine_toml(host))
        for machine, text in texts.items():
            (folder / "machines" / f"{machine}.toml").write_text(text)
        return folder


def machine_toml(host: Host, *, root: Path | None = None, ssh: str = "", name: str | None = None) -> str:
    return (
        f'name = "{name or host.name}"\naddress = "{host.address}"\noffline = true\ntags = ["lab"]\n'
        f"[ssh]\n{ssh}\n"
        f'[paths]\nroot = "{root or host.root}"\nlock = "{host.folder}/lock"\ncache = "{host.folder}/cache"\n'
        f'ray_temp = "{host.ray_temp}"\n'
    )


def run(*argv: object, check: bool = True, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=timeout_s)
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def find_uv() -> Path:
    places = [
        shutil.which("uv"),
        REPOSITORY / ".tools/bin/uv",
        (REPOSITORY / ".venv").resolve().parent / ".tools/bin/uv",
    ]
    found = next((Path(place) for place in places if place and Path(place).is_file()), None)
    assert found, "uv is missing: make setup fetches it"
    return found


def start_host(host: Host, hosts: Hosts, bridge: str, link: str, cleanup: contextlib.ExitStack) -> None:
    run("ip", "netns", "add", host.namespace)
    cleanup.callback(run, "ip", "netns", "del", host.namespace)
    cleanup.callback(host.end)
    inside = ("ip", "-n", host.namespace)
    run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    run("ip", "link", "set", link, "master", bridge, "up")
    run(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
    run(*inside, "link", "set", "eth0", "up")
    run(*inside, "link", "set", "lo", "up")
    host_key = make_key(host.folder / "host_key")
    with hosts.known_hosts.open("a") as known:
        known.write(f"[{host.address}]:{SSH_PORT} {host_key.with_suffix('.pub').read_text()}")
    Path("/run/sshd").mkdir(exist_ok=True)
    config = host.folder / "sshd_config"
    path = f"{host.programs}:{find_uv().parent}:{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    config.write_text(
        f"Port {SSH_PORT}\nListenAddress {host.address}\nHostKey {host_key}\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {hosts.key}.pub\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"PermitRootLogin prohibit-password\nSetEnv PATH={path}\n"
    )
    log = (host.folder / "sshd.log").open("wb")
    cleanup.callback(log.close)
    process = subprocess.Popen(
        ["ip", "netns", "exec", host.namespace, SSHD, "-D", "-e", "-f", config], stdout=log, stderr=log
    )
    cleanup.callback(process.wait)
    cleanup.callback(process.kill)
    wait_for_port(host.address, SSH_PORT, process)


def wait_for_port(address: str, port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("sshd ended at once; see its log")


def make_key(path: Path) -> Path:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path)
    return path


@dataclass
class Fleet:
    """One data directory and inventory, and the commands on them."""

    hosts: Hosts
    data: Path
    inventory: Path
    first_up: subprocess.CompletedProcess[str] | None = None
    seconds: float = 0.0

    @property
    def a(self) -> Host:
        return self.hosts.machines[0]

    @property
    def b(self) -> Host:
        return self.hosts.machines[1]

    def __call__(self, *arguments: str, inventory: Path | None = None) -> subprocess.CompletedProcess[str]:
        where = ("--data", self.data, "--inventory", inventory or self.inventory)
        return run(sys.executable, "-m", "fleet.cli.main", *arguments, *where, check=False, timeout_s=170)

    @staticmethod
    def parse(doctor: subprocess.CompletedProcess[str]) -> dict[str, dict[str, dict[str, str]]]:
        """The answer of `fleet doctor --json`, by machine and check."""
        machines = json.loads(doctor.stdout)["machines"]
        return {machine["name"]: {check["check"]: check for check in machine["checks"]} for machine in machines}

"""Each way in which a machine can fail to come up is told with its remedy, while the other machine comes up."""

from __future__ import annotations

import pytest

from tests.hosts.network import Fleet, Host, machine_toml, make_key

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def wrong_host_key(fleet: Fleet, host: Host) -> str:
    other = make_key(fleet.hosts.folder / "other_host_key").with_suffix(".pub").read_text()
    known = fleet.hosts.folder / "wrong_known_hosts"
    known.write_text(f"[{host.address}]:2222 {other}")
    return machine_toml(host, ssh=f'known_hosts = "{known}"')


def unknown_host_key(fleet: Fleet, host: Host) -> str:
    known = fleet.hosts.folder / "empty known hosts"
    known.touch()
    return machine_toml(host, ssh=f'known_hosts = "{known}"')


def wrong_key(fleet: Fleet, host: Host) -> str:
    return machine_toml(host, ssh=f'key = "{make_key(fleet.hosts.folder / "other key")}"')


def closed_port(fleet: Fleet, host: Host) -> str:
    return machine_toml(host, ssh="port = 2223")


def no_route(fleet: Fleet, host: Host) -> str:
    address = host.address.rpartition(".")[0] + ".99"
    return machine_toml(host, ssh="connect_timeout_s = 1").replace(host.address, address)


def full_disk(fleet: Fleet, host: Host) -> str:
    return machine_toml(host, root=fleet.hosts.small_disk / "root")


def no_place(fleet: Fleet, host: Host) -> str:
    return machine_toml(host, root=host.folder / "sshd_config" / "root")


def no_python(fleet: Fleet, host: Host) -> str:
    return 'python = "3.11.99"\n' + machine_toml(host, root=fleet.hosts.folder / "other root")


WAYS = {
    wrong_host_key: ("shows another host key than the one known", "ssh-keygen -R"),
    unknown_host_key: ("is not known", "compare the fingerprint"),
    wrong_key: ("does not let us in: ", "ssh-copy-id -p 2222 root@"),
    closed_port: ("Connection refused", "is Remote Login (sshd) on there"),
    no_route: ("is not reached", "is it on"),
    full_disk: ("0.01 GiB are free at", "set paths.root to another disk"),
    no_place: ("Not a directory", "fleet doctor host-a"),
    no_python: ("there is no Python 3.11.99", "uv python install 3.11.99"),
}


@pytest.fixture(scope="module")
def ended(fleet: Fleet):
    """One `fleet up` over all the broken machines and a good one."""
    texts = {}
    for number, way in enumerate(WAYS):
        text = way(fleet, fleet.a).replace('"host-a"', f'"{way.__name__.replace("_", "-")}"', 1)
        # Each is a machine of its own, at the same place.
        root = f'root = "{fleet.a.root}"'
        texts[way.__name__] = text.replace(root, f'root = "{fleet.a.root}-{number}"')
    inventory = fleet.hosts.inventory("broken", fleet.b, **texts)
    return fleet("up", inventory=inventory), fleet("doctor", "--json", inventory=inventory)


def test_the_other_machine_is_up_and_the_exit_code_tells(ended):
    up, _ = ended
    print(up.stdout, up.stderr)
    assert up.returncode == 3
    assert "host-b  up  (nothing to change)" in up.stdout
    assert "Traceback" not in up.stderr
    assert up.stdout.count("failed") == len(WAYS)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_failure_is_told_with_its_remedy(ended, way):
    name = way.__name__.replace("_", "-")
    lines = ended[0].stderr.splitlines()
    where = next(number for number, line in enumerate(lines) if line.startswith(f"error: {name}: "))
    message, remedy = WAYS[way]
    assert message in lines[where]
    assert remedy.replace("host-a", name) in lines[where + 1]


def test_an_optional_machine_that_is_not_reached_is_no_failure(fleet: Fleet):
    text = "optional = true\n" + closed_port(fleet, fleet.a).replace('"host-a"', '"away"', 1)
    ended = fleet("up", inventory=fleet.hosts.inventory("optional", fleet.b, away=text))
    assert ended.returncode == 0, ended.stderr
    assert "away  absent (optional)" in ended.stdout


def test_the_doctor_sees_the_same_and_changes_nothing(fleet: Fleet, ended):
    _, doctor = ended
    assert doctor.returncode == 3
    found = fleet.parse(doctor)
    assert "another host key" in found["wrong-host-key"]["ssh"]["detail"]
    assert found["full-disk"]["disk"]["level"] == "problem"
    assert found["no-python"]["python"]["level"] == "problem"
    good = {name for name, check in found["host-b"].items() if check["level"] == "ok"}
    assert good >= {
        "ssh",
        "clock",
        "disk",
        "uv",
        "python",
        "build",
        "token",
        "node",
        "head from there",
        "ray",
        "niceness",
    }
    assert found["(head)"]["head"]["level"] == "ok"

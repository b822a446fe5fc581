"""The texts that an inventory may hold: each kind with the pattern that it must match and the words that say so.

A text that passed can't be an option of ssh, can't end a line, and can't hold a control character. Whatever still reaches
a shell is quoted there (fleet/cluster/ssh.py).
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from fleet.nodes.node import LABEL_PATTERN, RAY_TEMP_MAX_BYTES

_ADDRESS = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9_.:%-]{0,251}[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_PYTHON = re.compile(r"3\.(11|12|13)(\.[0-9]{1,2})?")
_PORTS = range(1, 65536)


def _check_label(value: str) -> str:
    if not LABEL_PATTERN.fullmatch(value):
        raise ValueError("use at most 63 letters, digits, '_', '.' and '-', with a letter or digit at both ends")
    return value


def _check_address(value: str) -> str:
    if "@" in value:
        raise ValueError("write the host alone, and the user as ssh.user")
    if not _ADDRESS.fullmatch(value):
        raise ValueError("expected a host name, an IP address, or a name from ~/.ssh/config")
    return value


def _check_user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise ValueError("expected a user name of letters, digits, '_', '.' and '-'")
    return value


def _check_text(value: str) -> str:
    if not value.strip() or not value.isprintable() or len(value) > 200:
        raise ValueError("expected one line of at most 200 printable characters")
    return value


def _check_path(value: str) -> str:
    _check_text(value)
    if not value.startswith(("/", "~/")) or ".." in value.split("/") or value.strip("/~") == "":
        raise ValueError("expected a path that begins with / or ~/ and has no '..'")
    return value


def _check_ray_temp(value: str) -> str:
    _check_path(value)
    if not value.startswith("/") or len(value.encode()) > RAY_TEMP_MAX_BYTES:
        raise ValueError(
            f"expected a path that begins with / and has at most {RAY_TEMP_MAX_BYTES} bytes: "
            "Ray puts sockets below it, whose paths must stay under 104"
        )
    return value


def _check_python(value: str) -> str:
    if not _PYTHON.fullmatch(value):
        raise ValueError("expected a version such as 3.12 or 3.12.7, of 3.11 to 3.13")
    return value


def _check_port(value: int) -> int:
    if value not in _PORTS:
        raise ValueError("expected a port from 1 to 65535")
    return value


def _check_timeout(value: int) -> int:
    if not 1 <= value <= 600:
        raise ValueError("expected whole seconds from 1 to 600")
    return value


def _check_port_range(value: list[int]) -> list[int]:
    if len(value) != 2 or not 1024 <= value[0] <= value[1] <= 65535 or value[1] - value[0] < 19:
        raise ValueError("expected [first, last] from 1024 to 65535, with room for 20 ports")
    return value


Label = Annotated[str, AfterValidator(_check_label)]
Address = Annotated[str, AfterValidator(_check_address)]
User = Annotated[str, AfterValidator(_check_user)]
Text = Annotated[str, AfterValidator(_check_text)]
PathText = Annotated[str, AfterValidator(_check_path)]
RayTemp = Annotated[str, AfterValidator(_check_ray_temp)]
PythonVersion = Annotated[str, AfterValidator(_check_python)]
Port = Annotated[int, AfterValidator(_check_port)]
Timeout = Annotated[int, AfterValidator(_check_timeout)]
PortRange = Annotated[list[int], AfterValidator(_check_port_range)]

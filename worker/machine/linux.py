"""What Linux's files say, turned into facts. Pure functions of text that never raise: what can't be read is None."""

from __future__ import annotations

import re


def parse_cpu_model(cpuinfo: str | None) -> str | None:
    """The processor's name in /proc/cpuinfo; ARM kernels give none."""
    found = re.search(r"^model name[ \t]*:[ \t]*(\S.*?)[ \t]*$", cpuinfo or "", re.MULTILINE)
    return found[1] if found else None


def parse_memory_bytes(meminfo: str | None) -> int | None:
    """The usable memory in /proc/meminfo."""
    found = re.search(r"^MemTotal:\s*([0-9]{1,14}) kB\s*$", meminfo or "", re.ASCII | re.MULTILINE)
    return int(found[1]) * 1024 or None if found else None


def parse_os_release(text: str | None) -> dict[str, str]:
    """The NAME=value lines of /etc/os-release, unquoted."""
    values: dict[str, str] = {}
    for line in (text or "").splitlines():
        found = re.fullmatch(r"""([A-Z][A-Z0-9_]*)=(["']?)(.*)\2""", line.strip(), re.ASCII)
        if found and found[3]:
            values[found[1]] = found[3]
    return values


def parse_word(text: str | None) -> str | None:
    """A file of one short line (a governor, a product name); None for an empty or an odd one."""
    word = (text or "").strip()
    return word if 0 < len(word) <= 120 and word.isprintable() else None

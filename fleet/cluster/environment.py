"""What a process of ours inherits from the one that starts it: enough to find its files, and no setting of Ray."""

from __future__ import annotations

from collections.abc import Mapping

KEPT_VARIABLES = frozenset(
    {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR"}
    | {"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SSL_CERT_FILE"}
)
KEPT_PREFIXES = ("LC_", "XDG_", "PYTHON")
"""What a process needs to find its files. Everything else, above all RAY_* and *_NUM_THREADS, is left out."""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT_VARIABLES or (name.startswith(KEPT_PREFIXES) and name != "PYTHONBREAKPOINT")
    }

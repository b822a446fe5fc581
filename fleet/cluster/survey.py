"""One look at a machine before anything is changed there: a script that any Unix runs, and what it printed."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from fleet.cluster.ssh import Ssh, SshError

_SCRIPT = r"""
case "$1" in "~/"*) root="$HOME/${1#??}" ;; *) root="$1" ;; esac
say() { printf '%s\t%s\n' "$1" "$2"; }
say epoch "$(date +%s)"
say home "$HOME"
say root "$root"
say user "$(id -un)"
say system "$(uname -s)"
say processor "$(uname -m)"
say niceness "$(nice)"
for uv in "$(command -v uv 2>/dev/null)" "$root/tools/bin/uv" "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv" \
  /opt/homebrew/bin/uv /usr/local/bin/uv; do
  if [ -n "$uv" ] && [ -x "$uv" ]; then say uv "$uv"; break; fi
done
say python "$(command -v python3 2>/dev/null)"
below="$root"
while [ ! -d "$below" ]; do below="$(dirname "$below")"; done
say below "$below"
[ -w "$below" ] && say writable yes
say disk "$(df -Pk "$below" 2>/dev/null | tail -n 1)"
say installed "$(cat "$root/installed" 2>/dev/null)"
[ -x "$root/venv/bin/python" ] && [ -f "$root/node.json" ] && say node yes
[ -e /tmp/ray/ray_current_cluster ] && say ray_left yes
if [ "$(uname -s)" = Darwin ]; then
  say sleep "$(pmset -g custom 2>/dev/null | awk '$1 == "sleep" {print $2}' | sort -rn | head -n 1)"
  sudo -n true 2>/dev/null && say sudo yes
fi
exit 0
"""

_FREE = re.compile(r"\s([0-9]+)\s+([0-9]+)\s+(-?[0-9]+)\s+[0-9]+%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a machine looks like. Units: `clock_off_s` is its clock minus ours, `clock_error_s` how far that may be wrong.

    `installed` is what the last whole installation left behind its name; `node`: there is a node to ask for its status.
    """

    home: str
    root: str
    user: str
    system: str
    processor: str
    clock_off_s: float
    clock_error_s: float
    below: str
    writable: bool
    free_bytes: int | None = None
    uv: str | None = None
    python: str | None = None
    installed: str | None = None
    node: bool = False
    niceness: int | None = None
    ray_left: bool = False
    sleep_min: int | None = None
    sudo: bool = False

    @property
    def is_mac(self) -> bool:
        return self.system == "Darwin"


def survey(ssh: Ssh) -> Survey:
    """Look. Raises: SshError when the machine is not reached or answers with something else."""
    begin_s = time.time()
    printed = ssh.check(["/bin/sh", "-c", _SCRIPT, "survey", ssh.node.paths.root], what="looking at the machine")
    end_s = time.time()
    try:
        return parse_survey(printed, begin_s=begin_s, end_s=end_s)
    except (KeyError, ValueError) as error:
        raise SshError(
            f"{ssh.node.name}: its shell printed something else than was asked for ({error})",
            "make the shell's start files silent for commands over ssh",
        ) from error


def parse_survey(printed: str, *, begin_s: float, end_s: float) -> Survey:
    """Raises: KeyError, ValueError for the output of something else."""
    lines = (line.partition("\t") for line in printed.splitlines())
    values = {key: value.strip() for key, tab, value in lines if tab}
    disk = _FREE.search(values.get("disk", ""))
    # Its clock was read to the second, somewhere between our two moments.
    off_s = float(values["epoch"]) + 0.5 - (begin_s + end_s) / 2
    return Survey(
        home=values["home"],
        root=values["root"].rstrip("/"),
        user=values["user"],
        system=values["system"],
        processor=values["processor"],
        clock_off_s=off_s,
        clock_error_s=0.5 + (end_s - begin_s) / 2,
        below=values["below"],
        writable="writable" in values,
        free_bytes=int(disk[3]) * 1024 if disk else None,
        uv=values.get("uv"),
        python=values.get("python") or None,
        installed=values.get("installed") or None,
        node="node" in values,
        niceness=_whole(values.get("niceness")),
        ray_left="ray_left" in values,
        sleep_min=_whole(values.get("sleep")),
        sudo="sudo" in values,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?[0-9]{1,6}", text, re.ASCII) else None

"""Where the commands keep and find what machines reported of themselves: one place to change when the ledger takes it.

Until then it is a file of lines in the data directory, the latest line of a machine being the one that counts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleet.errors import StorageError
from fleet.ledger.machine_events import MachineReported

REPORTS_FILE = "machines.jsonl"


def append_reports(data: Path, events: Iterable[MachineReported]) -> None:
    """Keep what changed. Raises: StorageError."""
    known = read_reports(data)
    lines = [json.dumps(dataclasses.asdict(event)) + "\n" for event in events if known.get(event.machine) != event]
    if not lines:
        return
    try:
        data.mkdir(parents=True, exist_ok=True)
        with (data / REPORTS_FILE).open("a", encoding="utf-8") as handle:
            handle.write("".join(lines))
    except OSError as error:
        raise StorageError(f"{data / REPORTS_FILE}: cannot be written: {error.strerror}", "check the disk") from error


def read_reports(data: Path) -> Mapping[str, MachineReported]:
    """The latest report of each machine; none where nothing was ever brought up."""
    try:
        lines = (data / REPORTS_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StorageError(
            f"{data / REPORTS_FILE}: cannot be read: {error.strerror}", "check its permissions"
        ) from error
    found = {}
    for line in lines:
        try:
            event = MachineReported(**json.loads(line))
        except (ValueError, TypeError):
            continue  # half a line, written as the disk became full
        found[event.machine] = event
    return found

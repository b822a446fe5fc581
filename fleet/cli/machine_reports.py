"""What machines reported of themselves, as the commands show it: read from the ledger, written to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fleet.ledger.events import MachineReported
from fleet.ledger.sqlite import Ledger, ask_ledger, record


def append_reports(data: Path, events: Iterable[MachineReported]) -> None:
    """Keep what changed. Raises: StorageError."""
    known = read_reports(data)
    new = [event for event in events if known.get(event.machine) != event]
    if new:
        record(data, *new)


def read_reports(data: Path) -> Mapping[str, MachineReported]:
    """The latest report of each machine; none where nothing was ever brought up."""
    events = [entry.event for entry in ask_ledger(data, Ledger.machine_records, otherwise=[])]
    return {event.machine: event for event in events if isinstance(event, MachineReported)}

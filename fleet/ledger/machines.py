"""The state of the machines: a fold over what was recorded of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleet.ledger.events import (
    MachineEvent,
    MachinePaused,
    MachineRecovered,
    MachineReported,
    MachineResumed,
    MachineStruck,
    Recorded,
)
from fleet.nodes.constraints import MachineFacts
from fleet.nodes.node import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    """What the ledger knows of one machine. Units: `quarantined_until_s` seconds since 1970."""

    facts: MachineFacts | None = None
    """What it said of itself when it was last brought up."""
    build_hash: str | None = None
    paused: str | None = None
    """Why nothing is started there."""
    strikes: int = 0
    """Attempts lost there in a row."""
    quarantined_until_s: float | None = None
    quarantined_for: str | None = None


def fold_machines(records: Iterable[Recorded]) -> dict[NodeName, MachineState]:
    """The state of every machine that anything was recorded of."""
    states: dict[NodeName, MachineState] = {}
    for record in records:
        if isinstance(record.event, MachineEvent):
            states[record.event.machine] = apply_machine(states.get(record.event.machine, MachineState()), record.event)
    return states


def apply_machine(state: MachineState, event: MachineEvent) -> MachineState:
    match event:
        case MachineReported():
            return replace(state, facts=MachineFacts.from_report(event.facts), build_hash=event.build_hash)
        case MachinePaused():
            return replace(state, paused=event.reason)
        case MachineStruck():
            return replace(
                state, strikes=event.strikes, quarantined_until_s=event.until_s, quarantined_for=event.reason
            )
        case MachineRecovered():
            return replace(state, strikes=0, quarantined_until_s=None, quarantined_for=None)
        case MachineResumed():
            return MachineState(facts=state.facts, build_hash=state.build_hash)

"""A machine is paused, put aside and used again by what was recorded of it."""

from __future__ import annotations

from fleet.ledger.events import MachinePaused, MachineRecovered, MachineResumed, MachineStruck, Recorded
from fleet.ledger.machines import MachineState, fold_machines
from fleet.nodes.node import NodeName

MINI = NodeName("mini")
STRUCK = MachineStruck(machine=MINI, reason="silent", strikes=3, until_s=700.0)
PAUSED = MachinePaused(machine=MINI, reason="in use")
ASIDE = MachineState(strikes=3, quarantined_until_s=700.0, quarantined_for="silent")


def after(*events) -> MachineState:
    return fold_machines(Recorded(seq=i, at_s=float(i), event=event) for i, event in enumerate(events))[MINI]


def test_losses_put_it_aside_and_a_success_forgets_them():
    assert after(STRUCK) == ASIDE
    assert after(STRUCK, MachineRecovered(machine=MINI)) == MachineState()


def test_a_success_does_not_end_a_pause_but_its_owner_does():
    assert after(PAUSED, STRUCK, MachineRecovered(machine=MINI)) == MachineState(paused="in use")
    assert after(PAUSED, STRUCK, MachineResumed(machine=MINI)) == MachineState()

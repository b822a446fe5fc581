"""A driver as a process of its own, for tests that kill or interrupt it: run a study with the synthetic worker.

drive.py DATA KNOBS...    one task per argument of knobs
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from conftest import SYNTHETIC_WORKER, make_study

from fleet.cluster.orders import Settings
from fleet.cluster.site import ThisMachine
from fleet.cluster.submit import submit
from fleet.errors import FleetError
from fleet.ledger.state import Done
from fleet.nodes.node import Node, NodeName


def main() -> int:
    data = Path(sys.argv[1])
    study = make_study(*(f"marker={data} {knobs}" for knobs in sys.argv[2:]))
    settings = Settings(worker_argv=SYNTHETIC_WORKER, spool=data / "spool", grace_s=0.5, retry_pause=0.1)
    try:
        state = submit(study, data=data, site=ThisMachine(Node(name=NodeName("driven"))), settings=settings)
    except FleetError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if state.count(Done) == len(study.tasks) else 1


if __name__ == "__main__":
    sys.exit(main())

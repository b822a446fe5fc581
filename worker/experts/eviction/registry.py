"""Every policy by the name that a task gives it."""

from __future__ import annotations

from worker.contract.errors import TaskError
from worker.experts.eviction.lfu import Lfu
from worker.experts.eviction.lfuda import Lfuda
from worker.experts.eviction.lru import Lru
from worker.experts.eviction.policy import EvictionPolicy
from worker.experts.eviction.s3fifo import S3Fifo

POLICIES: dict[str, type[EvictionPolicy]] = {"lru": Lru, "lfu": Lfu, "lfuda": Lfuda, "s3-fifo": S3Fifo}


def policy(name: str) -> EvictionPolicy:
    """Raises: TaskError for an unknown name."""
    try:
        return POLICIES[name]()
    except KeyError as error:
        raise TaskError(f"eviction is {name!r}, expected one of {', '.join(POLICIES)}") from error

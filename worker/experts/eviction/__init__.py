"""Which experts leave when others must come: pure policies over frozen states, one file each."""

from worker.experts.eviction.policy import EvictionPolicy, Experts
from worker.experts.eviction.registry import POLICIES, policy

__all__ = ["POLICIES", "EvictionPolicy", "Experts", "policy"]

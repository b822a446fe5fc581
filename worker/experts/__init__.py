"""The routed experts: records on disk, slots in memory, and the policy between them."""

"""Greedy decoding: the reference that every fast path must equal."""

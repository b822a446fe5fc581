"""The benchmark: the protocol's order, the controls, and the rows they become."""

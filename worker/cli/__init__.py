"""`worker`: the benchmark on one machine, as commands."""

"""The contract between the head and a node: what goes in (a task) and what comes out (an outcome, Arrow tables).

Nothing here imports MLX or Ray, so the head, the supervising actor and the tests can all read it at no cost.
"""

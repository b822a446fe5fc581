"""Attempts as Ray actors: one one-shot actor with a streaming method per attempt, placed on a node by its label.

Retries are the ledger's, so Ray's own are off. Whatever Ray reports as an exception becomes a `Vanished` item.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Any, cast

from fleet.cluster.items import Item, Order, Started, Vanished
from fleet.cluster.settings import HOST_LABEL, SLOT_RESOURCE
from fleet.cluster.supervise import Supervisor


class Attempt:
    """Owns the actor of one attempt. `local` says that its processes run on this machine."""

    def __init__(self, order: Order, *, local: bool) -> None:
        import ray

        self.order = order
        self._local = local
        self._started: Started | None = None
        self._actor: Any = (
            ray.remote(Supervisor)
            .options(
                num_cpus=0,
                resources={SLOT_RESOURCE: 1},
                label_selector={HOST_LABEL: order.node},
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=2,  # `stop` must get through while `run` streams
            )
            .remote(order)
        )
        self.stream: Any = self._actor.run.options(num_returns="streaming").remote()

    def take(self) -> Item:
        """The next item of a stream that is ready."""
        import ray
        from ray.exceptions import RayError

        try:
            item = cast("Item", ray.get(next(self.stream)))
        except StopIteration:
            return self._vanished("its supervisor ended without a result")
        except RayError as error:
            return self._vanished(f"its supervisor or its node is gone ({type(error).__name__})", machine=True)
        if isinstance(item, Started):
            self._started = item
        return item

    def close(self, *, forget: bool) -> None:
        """End the benchmark and give the node back; `forget` its spool, too. Never raises for an actor that is gone.

        Waits for a node that does not react, but not for long.
        """
        import ray
        from ray.exceptions import GetTimeoutError, RayError

        reacts = True
        try:
            if self._started is not None:
                ray.get(self._actor.stop.remote(), timeout=self.order.grace_s + 2)
                if forget:
                    ray.get(self._actor.forget.remote(), timeout=2)
        except GetTimeoutError:
            reacts = False
        except RayError:
            pass
        with contextlib.suppress(RayError):
            ray.kill(self._actor)
        if self._local and self._started is not None and not reacts:
            _kill(self._started)

    def _vanished(self, reason: str, *, machine: bool = False) -> Vanished:
        return Vanished(attempt_id=self.order.attempt_id, reason=reason, machine=machine)


def wait_for_items(attempts: Sequence[Attempt], timeout_s: float) -> list[tuple[Attempt, Item]]:
    """At most one item of each attempt that has one, after waiting at most `timeout_s` for the first."""
    import ray

    streams = {attempt.stream: attempt for attempt in attempts}
    ready, _ = ray.wait(list(streams), num_returns=1, timeout=timeout_s, fetch_local=False)
    return [(streams[stream], streams[stream].take()) for stream in ready]


def _kill(started: Started) -> None:
    """A supervisor that does not react is frozen: end it and the benchmark's group from outside."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(started.supervisor_pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(started.pid, signal.SIGKILL)

"""`fleet serve`: the head's long-running process. It drives what `fleet submit` asks for, on the machines of the inventory."""

from __future__ import annotations

import typer

from fleet.cli.data import CacheOption, DataOption, InventoryOption, LockOption, data_directory


def serve(
    *,
    inventory: InventoryOption = None,
    data: DataOption = None,
    cache: CacheOption = None,
    lock: LockOption = None,
) -> None:
    """Drive every study that is asked for, until Ctrl-C. After a crash, start it again: nothing is lost."""
    from rich.console import Console

    from fleet.cli.progress import watching
    from fleet.cli.sites import find_site
    from fleet.cli.submit import worker_settings
    from fleet.cluster.serve import serve as serve_studies
    from fleet.cluster.signals import termination_as_interrupt
    from fleet.errors import InterruptedStudyError

    directory = data_directory(data)
    site = find_site(inventory, directory)
    settings = worker_settings(directory, cache=cache, lock=lock)
    try:
        with termination_as_interrupt(), watching(Console(stderr=True)) as watcher:
            serve_studies(
                data=directory.root,
                site=site,
                settings=settings,
                watcher=watcher,
                say=lambda text: typer.echo(f"fleet: {text}", err=True),
            )
    except InterruptedStudyError:
        raise InterruptedStudyError("stopped serving; nothing is lost", "fleet serve goes on") from None

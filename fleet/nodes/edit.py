"""Machine files written and deleted by command: checked as if they had been read, and never half-written."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from fleet.errors import StorageError, UsageError
from fleet.nodes.inventory import MACHINES, Inventory
from fleet.nodes.load import Machine, SshTable, load_node, machine_files
from fleet.strict import validate
from worker.contract.private import own_directory


def add_machine(
    inventory: Inventory,
    name: str,
    address: str,
    *,
    user: str | None = None,
    port: int | None = None,
    key: str | None = None,
    tags: tuple[str, ...] = (),
    optional: bool = False,
) -> Path:
    """Write `machines/NAME.toml` and return its path.

    Raises: UsageError for a value that the reader would refuse, and for a name that exists; StorageError.
    """
    ssh = {"user": user, "port": port, "key": key and _absolute(key)}
    table = {"name": name, "address": address, "tags": list(tags), "optional": optional}
    path = inventory.folder / MACHINES / f"{name}.toml"
    given = {word: value for word, value in ssh.items() if value is not None}
    validate({**table, "ssh": given}, Machine, where=f"machine {name!r}")
    if any(node.name.casefold() == name.casefold() for node in inventory.nodes):
        raise UsageError(f"{inventory.folder}: there is a machine {name!r}", "remove it first, or choose another name")
    _write_new(path, _toml(table, given))
    return path


def remove_machine(inventory: Inventory, name: str) -> Path:
    """Delete the file of a machine and return its path. Raises: UsageError when there is none; StorageError."""
    (node,) = inventory.choose([name])
    for path in machine_files(inventory.folder / MACHINES):
        if load_node(path, SshTable()).name == node.name:
            try:
                path.unlink()
            except OSError as error:
                raise StorageError(f"{path}: cannot be deleted: {error.strerror}", "check its permissions") from error
            return path
    raise UsageError(f"{inventory.folder}: the file of machine {name!r} is gone", "fleet machines list")


def _absolute(key: str) -> str:
    """A key named on a command line is one of the present directory."""
    return key if key.startswith("~/") else str(Path(key).absolute())


def _toml(table: dict[str, object], ssh: dict[str, object]) -> str:
    """Every value is a text, a number, a truth value or a list of texts, which JSON and TOML write alike."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    if ssh:
        lines += ["", "[ssh]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in ssh.items())]
    return "\n".join(lines) + "\n"


def _write_new(path: Path, text: str) -> None:
    """Put a whole file there, unless there is one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        own_directory(path.parent)
        draft.write_text(text, encoding="utf-8")
        os.link(draft, path)
    except FileExistsError:
        raise UsageError(f"{path}: exists already", "remove it first, or choose another name") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}", "check the permissions there") from error
    finally:
        with suppress(OSError):
            draft.unlink()

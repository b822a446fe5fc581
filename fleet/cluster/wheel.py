"""This very installation as a wheel, so that the machines run what the head runs, however it was installed.

The same files give the same bytes: sorted names, no dates. So the digest of a wheel says whether a machine has it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import fleet
import worker
from fleet.errors import ClusterError

DISTRIBUTION = "mlx-fleet"
LOCK_FILE = "requirements.lock"
BUNDLED = {
    "inventory/studies/demo.toml": "fleet/bundled/studies/demo.toml",
    "inventory/prompts/demo.jsonl": "fleet/bundled/prompts/demo.jsonl",
    LOCK_FILE: f"fleet/bundled/{LOCK_FILE}",
}
"""What a checkout keeps outside the packages, and where a wheel has it. The same as in pyproject.toml."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT = frozenset({"__pycache__", ".DS_Store"})
_WHEEL = "Wheel-Version: 1.0\nGenerator: mlx-fleet\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel in memory."""

    name: str
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def lock_file() -> bytes:
    """The hashed list of everything that this build needs. Raises: ClusterError when the installation lacks it."""
    return dict(_bundled())[BUNDLED[LOCK_FILE]]


def pack() -> Wheel:
    """Pack the packages, their data, entry points and metadata. Raises: ClusterError for a damaged installation."""
    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise ClusterError("this program is not installed: it has no metadata", "make setup") from None
    info = f"{DISTRIBUTION.replace('-', '_')}-{found.version}.dist-info"
    files = dict(_bundled()) | dict(_packages()) | dict(_metadata(found, info))
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    files[f"{info}/RECORD"] = _record(files, info)
    return Wheel(name=f"{info.removesuffix('.dist-info')}-py3-none-any.whl", content=_zip(files))


def _packages() -> Iterator[tuple[str, bytes]]:
    for package in (fleet, worker):
        root = Path(next(iter(package.__path__)))
        for path in root.rglob("*"):
            if path.is_file() and not _LEFT_OUT & set(path.parts) and path.suffix not in (".pyc", ".tmp"):
                yield f"{root.name}/{path.relative_to(root).as_posix()}", path.read_bytes()


def _bundled() -> Iterator[tuple[str, bytes]]:
    package = Path(next(iter(fleet.__path__)))
    for outside, inside in BUNDLED.items():
        places = (package.parent / inside, package.parent / outside)
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise ClusterError(f"this installation is damaged: {inside} is missing", "install it again")
        yield inside, path.read_bytes()


def _metadata(found: metadata.Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    for name in ("METADATA", "entry_points.txt"):
        text = found.read_text(name)
        if text is None:
            raise ClusterError(f"this installation is damaged: its {name} is missing", "install it again")
        yield f"{info}/{name}", text.encode()
    if license_text := found.read_text("licenses/LICENSE"):
        yield f"{info}/licenses/LICENSE", license_text.encode()


def _record(files: dict[str, bytes], info: str) -> bytes:
    lines = []
    for name in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(files[name])}")
    return "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()


def _zip(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".safetensors") else zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return target.getvalue()

"""The bundled model is the one whose provenance is written down."""

from __future__ import annotations

from worker.checkpoint.digests import file_digest
from worker.checkpoint.resolve import BUNDLED_DIRECTORY


def test_every_file_has_the_recorded_digest():
    lines = (BUNDLED_DIRECTORY / "SHA256SUMS").read_text().splitlines()
    recorded = {name: digest for digest, name in (line.split() for line in lines)}
    present = {path.name for path in BUNDLED_DIRECTORY.iterdir()} - {"SHA256SUMS", "PROVENANCE.md"}
    assert present == set(recorded)
    for name, digest in recorded.items():
        assert file_digest(BUNDLED_DIRECTORY / name) == digest, name

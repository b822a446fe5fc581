"""Before the head starts, its address and port are tried; its token is private and stays; its file is never half-read."""

from __future__ import annotations

import socket
import stat

import pytest

from fleet.cluster.daemon import ensure_head, read_cluster, stop_head
from fleet.cluster.token import keep_token, write_token
from fleet.errors import ClusterError, StorageError
from fleet.nodes.inventory import Head


def test_an_address_of_another_machine_is_refused(tmp_path):
    with pytest.raises(ClusterError, match=r"cannot listen at 192\.0\.2\.200:6379") as caught:
        ensure_head(tmp_path, Head(address="192.0.2.200"))
    assert "head.address in fleet.toml" in caught.value.hint
    assert read_cluster(tmp_path) is None


def test_a_port_that_another_program_has_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ClusterError, match="another program does"):
            ensure_head(tmp_path, Head(port=port))
    assert not (tmp_path / "cluster.json").exists()


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        ensure_head(tmp_path / "file" / "data", Head())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"address": "h:1"}', '{"address": "h:1", "leader": 3}'])
def test_a_file_that_is_none_names_no_head(tmp_path, text):
    (tmp_path / "cluster.json").write_text(text)
    assert read_cluster(tmp_path) is None
    assert stop_head(tmp_path) is False


def test_a_token_is_private_and_stays(tmp_path):
    path = keep_token(tmp_path / "token")
    first = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keep_token(path).read_text() == first
    with pytest.raises(FileExistsError):
        write_token(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o777])
def test_a_token_that_others_may_have_read_starts_nothing_and_is_named_with_the_remedy(tmp_path, mode):
    path = keep_token(tmp_path / "token")
    path.chmod(mode)
    with pytest.raises(StorageError, match=f"others may have read the token .mode {mode:o}, expected 600") as caught:
        ensure_head(tmp_path, Head(address="192.0.2.200"))
    assert caught.value.hint == f"rm {path}; fleet up makes another and brings it to the machines"
    assert read_cluster(tmp_path) is None

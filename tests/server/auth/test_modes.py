"""Files of a service: nobody but its own user reads any, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.auth.hostile import running_site


@pytest.fixture
def lax() -> Iterator[None]:
    """The most permissive umask."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    entries = [folder, *folder.rglob("*")]
    return [f"{path}: {stat.filemode(path.lstat().st_mode)}" for path in entries if path.lstat().st_mode & 0o077]


@pytest.mark.usefixtures("lax")
def test_all_that_a_service_stores_is_its_own(tmp_path: Path) -> None:
    with running_site(tmp_path) as site, site.http(site.admin) as http:
        wanted = {"path": "/v1/stores/own-tag/files/m.onnx"}
        assert http.post("/spaces/own/v1/sign", json=wanted).status_code == 201
        storage = tmp_path / "storage"
        assert (storage / "catalog.sqlite").is_file()
        assert open_to_others(storage) == []


@pytest.mark.usefixtures("lax")
def test_files_of_others_are_seen(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    assert len(open_to_others(tmp_path)) >= 1

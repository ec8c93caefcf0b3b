"""Default targets of `pull`: an author's names must not replace files of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from protoslice.client import Client
from protoslice.sources.files import BytesSource

DATA = b"\x0a\x22\x0a\x20" + b"0123456789abcdef" * 2
Push = Callable[..., str]


@pytest.fixture
def push(service: str) -> Push:
    """Makes a store of files by path; its tag."""

    def push(files: Mapping[str, bytes], tag: str) -> str:
        with Client(service) as client:
            client.push({path: BytesSource(data) for path, data in files.items()}, tags=[tag])
        return tag

    return push


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", [".bashrc", "-rf", "~root"])
def test_pull_refuses_names_with_a_special_meaning(call: Any, push: Push, home: Path, name: str) -> None:
    tag = push({name: DATA}, "special:1")
    refused = call("pull", f"@{tag}", code=2)
    assert repr(name) in refused.stderr
    assert "--force" in refused.stderr
    assert list(home.iterdir()) == []
    call("pull", f"@{tag}", home / "named.pb")
    assert (home / "named.pb").read_bytes() == DATA
    call("pull", f"@{tag}", "--force")
    assert (home / name).read_bytes() == DATA


def test_pull_keeps_existing_files_with_other_content(call: Any, push: Push, home: Path) -> None:
    tag = push({"model.pb": DATA}, "existing:1")
    (home / "model.pb").write_text("mine")
    assert "model.pb already exists with different content" in call("pull", f"@{tag}", code=7).stderr
    assert (home / "model.pb").read_text() == "mine"
    call("pull", f"@{tag}", "--force")
    assert (home / "model.pb").read_bytes() == DATA
    assert "unchanged" in call("pull", f"@{tag}").stdout
    (home / "model.pb").write_text("mine")
    call("pull", f"@{tag}", "model.pb")
    assert (home / "model.pb").read_bytes() == DATA


@pytest.mark.parametrize("view", ["files/.bashrc", "cpb", "merge", "files/a/model.pb"])
def test_pull_of_a_view_refuses_the_same(call: Any, push: Push, home: Path, view: str) -> None:
    files = {".bashrc": b"evil", "a/model.pb": DATA} if "files" in view else {".profile.pb": DATA}
    tag = push(files, f"views:{len(view)}")
    (home / "model.pb").write_text("mine")
    assert call("pull", f"@{tag}", "--view", view, code=7 if view.endswith("model.pb") else 2).stderr
    assert [(each.name, each.read_text()) for each in home.iterdir()] == [("model.pb", "mine")]


def test_pull_of_a_view_keeps_an_existing_file(call: Any, push: Push, home: Path) -> None:
    tag = push({"model.pb": DATA}, "view:existing")
    (home / "model.cpb").write_text("mine")
    assert "--force" in call("pull", f"@{tag}", "--view", "cpb", code=7).stderr
    assert (home / "model.cpb").read_text() == "mine"
    call("pull", f"@{tag}", "--view", "cpb", "--force")
    assert (home / "model.cpb").read_bytes() != b"mine"


def test_pull_of_several_files_keeps_a_folder_of_something_else(call: Any, push: Push, home: Path) -> None:
    tag = push({"model.pb": DATA, "ls": b"evil", ".hidden/x": b"x"}, "bin")
    (home / "bin").mkdir()
    (home / "bin" / "mine").write_text("mine")
    assert "bin already exists and is not part of this store" in call("pull", f"@{tag}", code=7).stderr
    assert [each.name for each in (home / "bin").iterdir()] == ["mine"]
    call("pull", f"@{tag}", "--force")
    assert (home / "bin" / "ls").read_bytes() == b"evil"


def test_pull_resumes_in_the_folder_that_it_made(call: Any, push: Push, home: Path) -> None:
    tag = push({"model.pb": DATA, "sub/words.txt": b"word\n"}, "resumed:1")
    call("pull", f"@{tag}")
    folder = home / "resumed-1"
    (folder / "sub" / "words.txt").rename(folder / "sub" / f".words.txt.{'0' * 16}.part")
    call("pull", f"@{tag}")
    assert (folder / "sub" / "words.txt").read_bytes() == b"word\n"
    (folder / "sub" / "words.txt").write_text("mine")
    call("pull", f"@{tag}", code=7)


def test_pull_into_a_folder_with_a_slash_makes_it(call: Any, push: Push, home: Path) -> None:
    tag = push({"a/model.pb": DATA}, "slash:1")
    call("pull", f"@{tag}", "there/")
    assert (home / "there" / "a" / "model.pb").read_bytes() == DATA
    call("pull", f"@{tag}", "views/new/", "--view", "cpb")
    assert (home / "views" / "new" / "model.cpb").is_file()
    call("pull", f"@{tag}", "views/new", "--view", "files/a/model.pb")
    assert (home / "views" / "new" / "model.pb").read_bytes() == DATA


def test_client_download_into_a_folder_with_a_slash_makes_it(service: str, push: Push, home: Path) -> None:
    tag = push({"model.pb": DATA}, "slash:2")
    with Client(service) as client:
        (got,) = client.download(tag, "one/")
        assert got.path == Path("one", "model.pb")
        client.download(tag, "two/", view="chunks/0")
    assert (home / "one" / "model.pb").read_bytes() == DATA
    assert (home / "two" / "0").is_file()


def test_pull_takes_the_address_of_a_page_and_a_url(call: Any, service: str, push: Push, home: Path) -> None:
    push({"model.pb": DATA}, "paged:1")
    call("pull", f"{service}/m/paged:1", url="")
    call("pull", "paged:1", "again.pb", "--url", service, url="http://127.0.0.1:9")
    assert (home / "model.pb").read_bytes() == (home / "again.pb").read_bytes() == DATA

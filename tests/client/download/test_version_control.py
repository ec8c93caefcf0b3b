"""A download makes or changes no repository whose settings run commands, and follows no link in its folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import fsspec
import pytest

from protoslice.client import Client
from protoslice.errors import Conflict


def stored(client: Client, tmp_path: Path, *paths: str) -> str:
    """A store of files as a service of an older version took them."""
    folder = tmp_path / "sent"
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("protoslice.file_names.is_version_control", lambda path: False)
        patch.setattr("protoslice.client.upload.bodies.is_version_control", lambda path: False, raising=False)
        return client.push(folder).store.id


def test_names_of_version_control_are_left_out_and_named(client: Client, tmp_path: Path) -> None:
    store = stored(client, tmp_path, "a", ".git/config", "b/.hg/hgrc")
    with pytest.warns(UserWarning, match=r"2 files left out: '\.git/config', 'b/\.hg/hgrc'"):
        client.download(store, tmp_path / "here")
    assert sorted(os.listdir(tmp_path / "here")) == ["a"]
    client.download(store, tmp_path / "alone", view="files/.git/config")
    assert (tmp_path / "alone").read_text() == ".git/config"
    files = fsspec.filesystem("protoslice")
    host = client.url.removeprefix("http://")
    assert [each.rpartition("/")[2] for each in files.find(f"{host}/{store}/files")] == ["a"]
    assert files.cat_file(f"{host}/{store}/files/.git/config") == b".git/config"


def test_a_clone_is_pushed_without_its_history(client: Client, tmp_path: Path) -> None:
    for path in ("model/.git/config", "model/.gitattributes", "model/weights"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    assert [file.path for file in client.push(tmp_path / "model").store.files] == [".gitattributes", "weights"]


@pytest.mark.parametrize("there", [(), ("HEAD", "config")])
@pytest.mark.parametrize("below", ["", "folder/"])
def test_no_folder_becomes_a_bare_repository(
    client: Client, tmp_path: Path, there: tuple[str, ...], below: str
) -> None:
    made = {"HEAD": "ref: refs/heads/x\n", "config": "[core]\nbare = true\n", "objects/x": "", "refs/x": ""}
    whole, here = tmp_path / "whole", tmp_path / "here"
    for path, content in made.items():
        for folder in (whole, *([here / below] if path in there else ())):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
    said = subprocess.run(
        ["git", "rev-parse", "--is-bare-repository"], cwd=whole, capture_output=True, text=True, check=True
    )
    assert said.stdout == "true\n", "git takes this for no repository: the test has no point"
    store = stored(client, tmp_path, *(below + path for path in made if path not in there))
    before = sorted(path for path in here.rglob("*"))
    with pytest.raises(Conflict, match="git would take"):
        client.download(store, here)
    assert sorted(path for path in here.rglob("*")) == before
    with pytest.raises(Conflict, match="git would take"):
        client.download(store, whole / "config", view=f"files/{below}refs/x")


def test_a_worktree_of_a_repository_elsewhere_is_none_either(client: Client, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="git would take"):
        client.download(stored(client, tmp_path, "HEAD", "commondir", "x"), tmp_path / "here")


def test_what_the_disk_takes_for_the_folder_of_a_repository_is_not_written(client: Client, tmp_path: Path) -> None:
    """The disk says what a name means: a link stands for a short name that the rule does not know."""
    (tmp_path / "here" / ".git").mkdir(parents=True)
    (tmp_path / "here" / "CONFIG~1").symlink_to(".git")
    with pytest.raises(Conflict):
        client.download(stored(client, tmp_path, "CONFIG~1/config", "b"), tmp_path / "here")
    assert not os.listdir(tmp_path / "here" / ".git")


def test_a_link_in_the_folder_is_not_followed(client: Client, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here" / "folder").symlink_to(tmp_path / "elsewhere")
    store = stored(client, tmp_path, "folder/a", "b")
    with pytest.raises(Conflict, match="is a link"):
        client.download(store, tmp_path / "here")
    assert not os.listdir(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    client.download(store, tmp_path / "link")
    assert (tmp_path / "elsewhere" / "b").read_text() == "b", "the folder that the user names may be a link"

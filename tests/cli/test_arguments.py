"""Mistakes on the command line: each is answered by a line that names it, and by its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = [sys.executable, "-m", "protoslice.cli"]
VERBS: dict[str, list[str]] = {
    "info": ["{}"],
    "tree": ["{}"],
    "chunks": ["{}"],
    "cat": ["{}", "1"],
    "split": ["{}", "out"],
    "merge": ["{}", "out.pb"],
    "tensor": ["{}"],
    "verify": ["{}"],
    "diff": ["good.pb", "{}"],
    "push": ["{}"],
}
MISTAKES = {
    "missing.pb": 4,
    "dangling.pb": 4,
    "circle.pb": 6,
    "good.pb/below": 6,
    "bad.pb": 3,
    "empty": 2,
    "http://127.0.0.1:1/v1/stores/any": 6,
    "http://127.0.0.1:1/v1/store/any": 6,
    "http://127.0.0.1:1": 2,
    "@": 2,
    "@absent": 4,
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what can be mistaken, in which we are."""
    (tmp_path / "good.pb").write_bytes(b"\x0a\x03abc\x10\x07")
    (tmp_path / "bad.pb").write_bytes(b"\xff" * 40)
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling.pb").symlink_to("nowhere.pb")
    (tmp_path / "circle.pb").symlink_to("circle.pb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# A file that is no proto is no mistake for `push`: a store needs none.
@pytest.mark.parametrize(
    ("verb", "name"), [(verb, name) for verb in VERBS for name in MISTAKES if (verb, name) != ("push", "bad.pb")]
)
def test_a_mistake_is_a_line_that_names_it(call: Any, place: Path, verb: str, name: str) -> None:
    code = _code(verb, name)
    told = call(verb, *(each.format(name) for each in VERBS[verb]), code=code).stderr
    assert told.startswith("protoslice: ")
    assert told.count("\n") == 1
    assert name.removeprefix("@").removesuffix("/v1/stores/any").rpartition("/")[2] in told
    assert sorted(each.name for each in place.iterdir()) == ["bad.pb", "circle.pb", "dangling.pb", "empty", "good.pb"]


def _code(verb: str, name: str) -> int:
    """Exit code of a mistake, which says who must act."""
    store = (name.startswith(("@", "http")) and MISTAKES[name] != 6) or name.endswith("/v1/stores/any")
    if store and verb == "split":
        return 3
    if store and verb == "push":
        return 2
    if name in {"circle.pb", "good.pb/below"} and verb == "push":
        return 4
    return MISTAKES[name]


@pytest.mark.parametrize("verb", ["info", "tree", "chunks", "cat", "split", "merge"])
def test_a_folder_stands_for_its_root(call: Any, place: Path, verb: str) -> None:
    (place / "folder").mkdir()
    (place / "good.pb").rename(place / "folder" / "good.pb")
    (place / "circle.pb").rename(place / "folder" / "circle.pb")
    call(verb, *(each.format("folder") for each in VERBS[verb]), *(["-o", "-"] if verb == "cat" else []))


def test_only_the_second_is_blamed_for_what_is_wrong_with_it(call: Any, place: Path) -> None:
    assert "good.pb" not in call("diff", "good.pb", "bad.pb", code=3).stderr


def test_a_stream_is_no_model_of_several_files(call: Any, place: Path) -> None:
    os.mkfifo(place / "pipe")
    for verb, args in (("tensor", ["pipe"]), ("tensor", ["-"]), ("diff", ["good.pb", "pipe"])):
        assert "is a stream" in call(verb, *args, code=3).stderr
    assert "Cannot resume an upload" in call("push", "-", code=3).stderr
    assert "Cannot push" in call("push", "pipe", code=2).stderr


@pytest.mark.parametrize(
    "arguments", [["cat", "good.pb", "1", "-o", "/dev/full"], ["cat", "good.pb", "1", "-o", "-"], ["tree", "good.pb"]]
)
def test_a_full_disk_is_named(place: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    where = "/dev/full" if "/dev/full" in arguments else "standard output"
    assert (done.returncode, done.stderr) == (6, f"protoslice: {where}: No space left on device\n")

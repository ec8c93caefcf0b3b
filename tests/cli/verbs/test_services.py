"""The verbs on a live service: what they answer of a store is what they answer of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VALUE = 'node[1].attr["value"].tensor.tensor_content'


def test_a_model_goes_there_and_comes_back(call: Any, service: str, changed: Path, tmp_path: Path) -> None:
    pushed = call("push", changed, "--tag", "there:1")
    at = pushed.stdout.strip()
    assert at.startswith(f"{service}/m/")
    assert " sent" in pushed.stderr
    again = json.loads(call("push", changed, "--url", service, "--json").stdout)
    assert (again["created"], again["store"]["id"]) == (False, at.rpartition("/")[2])
    assert call("pull", at, tmp_path / "back.pb").stdout == f"{tmp_path / 'back.pb'}: 1.15 MiB\n"
    assert (tmp_path / "back.pb").read_bytes() == changed.read_bytes()
    (got,) = json.loads(call("pull", "@there:1", tmp_path / "back.pb", "--json").stdout)
    assert got["fetched"] == 0, "it is there already"
    call("pull", "@there:1", tmp_path / "model.cpb", "--view", "cpb")
    call("merge", tmp_path / "model.cpb", tmp_path / "merged.pb")
    assert (tmp_path / "merged.pb").read_bytes() == changed.read_bytes()


def test_folders_go_as_they_are(call: Any, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "assets").mkdir(parents=True)
    (folder / "graph.pb").write_bytes(model.read_bytes())
    (folder / "assets" / "words.txt").write_text("word\n")
    told = json.loads(call("push", folder, "--root", "graph.pb", "--json").stdout)
    assert sorted(file["path"] for file in told["store"]["files"]) == ["assets/words.txt", "graph.pb"]
    call("pull", f"@{told['store']['id'][:16]}", tmp_path / "back")
    assert (tmp_path / "back" / "assets" / "words.txt").read_text() == "word\n"
    assert (tmp_path / "back" / "graph.pb").read_bytes() == model.read_bytes()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["info", "@absent:1"], 4, "absent:1"),
        (["cat", "@model:1", "node[99]"], 4, "node"),
        (["cat", "@model:1", "node[["], 2, "character 6"),
        (["tensor", "@model:1", "nobody"], 4, "nobody"),
        (["tensor", "@model:1", "constant_1", "--slice", "x"], 2, "slice"),
        (["tensor", "@model:1", "--slice", "1:2"], 2, "name the one to slice"),
        (["chunks", "@model:1", "--min-chunk", "1KiB"], 2, "are only for files"),
        (["tree", "@model:1", "--type", "onnx.ModelProto"], 3, "--type and --schema are only for files"),
        (["tag", "model:1", "@model:1", "--new"], 7, "http://127"),
        (["tag", "model:1"], 2, "--remove"),
        (["tag", "a b", "@model:1"], 2, "tag"),
        (["rm", "absent:1"], 4, "absent:1"),
        (["rm", "--store", "absent:1"], 4, "absent:1"),
        (["rm", "ffffffffffff"], 4, "ffffffffffff"),
        (["rm", "@"], 2, "No store after '@'"),
        (["rm", "a b"], 2, "does not name a store"),
        (["restore", "f" * 64], 4, "http://127"),
        (["restore", "model:1"], 4, "give the id of the store"),
        (["info", "@"], 2, "No store after '@'"),
        (["info", "http://127.0.0.1/"], 2, "does not name a store"),
        (["ls", "--url", "127.0.0.1"], 2, "Invalid service address"),
        (["push", "/nowhere/model.pb"], 4, "does not exist"),
        (["pull", "@model:1", "{model}", "--view", "nothing"], 4, "http://127"),
    ],
)
def test_an_error_is_one_line_and_a_code(
    call: Any, store: str, model: Path, args: list[str], code: int, says: str
) -> None:
    done = call(*(arg.format(model=model) for arg in args), code=code)
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_service_that_is_not_named_is_asked_for(call: Any) -> None:
    for args in (["ls"], ["info", "@model:1"]):
        assert "PROTOSLICE_URL" in call(*args, url="", code=2).stderr


@pytest.mark.parametrize(
    "args",
    [
        ["pull", "@model:1", "{model}/below"],
        ["pull", "@model:1", "{folder}/x", "--view", "cpb", "--align", "8"],
        ["pull", "@model:1", "--only", "chunks/0"],
        ["push", "{folder}"],
        ["tensor", "@model:1", "--slice", "1:2", "-o", "{folder}/out.safetensors"],
        ["tensor", "@model:1", "constant_1", "-o", "{model}"],
        ["chunks", "@model:1", "--min-chunk", "1KiB"],
        ["cat", "@model:1", "node[0].name", "-o", "{model}/below"],
        ["merge", "@model:1", "{model}"],
        ["split", "@model:1", "{folder}/out"],
        ["extract", "@model:1", "{model}"],
        ["diff", "@model:1", "{folder}/absent"],
    ],
)
def test_errors_of_local_causes_do_not_name_the_service(
    call: Any, service: str, store: str, model: Path, tmp_path: Path, args: list[str]
) -> None:
    done = call_any(call, *(arg.format(model=model, folder=tmp_path) for arg in args))
    assert done.stderr.startswith("protoslice: ")
    assert service not in done.stderr


def call_any(call: Any, *args: str) -> Any:
    """Call a verb that fails, with any code."""
    for code in (2, 3, 4, 6, 7):
        try:
            return call(*args, code=code)
        except AssertionError:
            continue
    raise AssertionError(f"{args} did not fail")


def test_errors_of_the_service_and_of_the_connection_name_it(call: Any, service: str, store: str) -> None:
    for args in (
        ["info", "@absent:1"],
        ["cat", store, "node[99]"],
        ["tensor", store, "constant_1", "--slice", "x", "-o", "-"],
    ):
        assert f"{service}: " in call_any(call, *args).stderr
    assert "http://127.0.0.1:9: " in call("ls", "--url", "http://127.0.0.1:9", code=6).stderr


def test_a_base_may_be_named_like_every_store(call: Any, service: str, store: str, changed: Path) -> None:
    for base in (
        "model:1",
        "@model:1",
        f"{service}/v1/stores/model:1",
        f"{service}/m/model:1",
        f"{service}/m/model:1/tensors?tensor=x",
    ):
        assert json.loads(call("push", changed, "--base", base, "--json").stdout)["store"]
    assert "is not on" in call("push", changed, "--base", "http://127.0.0.1:9/v1/stores/model:1", code=2).stderr
    assert "does not name a store" in call("push", changed, "--base", "a b", code=2).stderr


def test_the_operator_finds_the_request(call: Any, store: str) -> None:
    assert "127.0.0.1" in call("cat", store, "node[99]", code=4).stderr


def test_a_folder_without_a_proto_is_kept_as_files(call: Any, tmp_path: Path) -> None:
    for folder, words in (("one", "words"), ("other", "other words")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.txt").write_text(words)
        (tmp_path / folder / "weights.bin").write_bytes(bytes(5000))
    pushed = call("push", tmp_path / "one", "--tag", "files:1")
    assert "stored as plain files: none of the 2 files is in a supported format" in pushed.stderr
    (listed,) = json.loads(call("ls", "--tag", "files", "--json").stdout)
    assert (listed["root"], listed["type"]) == (None, None)
    assert "files only" in call("ls", "--tag", "files").stdout
    assert "none: none of the 2 files" in call("info", "@files:1").stdout
    assert "OK: 2 files" in call("verify", "@files:1").stdout + call("verify", "@files:1").stderr
    assert "no root proto" in call("chunks", "@files:1", code=4).stderr
    call("pull", "@files:1", tmp_path / "back")
    assert (tmp_path / "back" / "notes.txt").read_text() == "words"
    for same in (tmp_path / "one", "@files:1"):
        assert call("diff", same, "@files:1").stdout == "equal\n"
        found = json.loads(call("diff", same, tmp_path / "other", "--json", code=8).stdout)["differences"]
        assert [(each["what"], each["path"], each["change"]) for each in found] == [("file", "notes.txt", "changed")]
    assert "none of the 2 files is in a supported format" in call("info", tmp_path / "one", code=4).stderr

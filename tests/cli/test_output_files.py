"""Every command that writes a file: it replaces no file without `--force`, and its output survives a power failure.

Chunks above 2 GiB, which no protobuf runtime parses, are written with a warning.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from tests.cli.conftest import Call
from tests.support.canonical import varint
from tests.support.stores import onnx
from tests.support.streams import FRAMED

import protoslice
from protoslice import schema
from protoslice.cli.app import app
from protoslice.defaults import LARGEST_MESSAGE
from protoslice.library.proto import LargeChunkWarning, size_problem
from protoslice.sizes import format_size
from protoslice.splitting import GraphDefSplitter

Args = tuple[object, ...]
MODEL: Final = "@written:1"

COMMANDS: Final[dict[str, Callable[[Path, Path], dict[Args, str]]]] = {
    "cat": lambda model, out: {("cat", model, "graph", "-o", out / "x"): "x"},
    "tensor": lambda model, out: {
        ("tensor", model, "weight-0", "-o", out / "x.npy"): "x.npy",
        ("tensor", model, "weight-0", "--format", "raw", "-o", out / "x"): "x",
        ("tensor", model, "-o", out / "x.safetensors"): "x.safetensors",
    },
    "split": lambda model, out: {
        ("split", model, out / "x", "--min-chunk", "1KiB"): "x.cpb",
        ("split", model, out / "y"): "y.pb",
    },
    "merge": lambda model, out: {("merge", model, out / "x"): "x", ("merge", MODEL, out / "y"): "y"},
    "extract": lambda model, out: {
        ("extract", model, out / "x.onnx"): "x.onnx",
        ("extract", model, out / "x"): "x/weights.bin",
        ("extract", MODEL, out / "y.onnx"): "y.onnx",
        ("extract", MODEL, out / "y"): "y/weights.bin",
    },
    "pull": lambda model, out: {
        ("pull", MODEL, out / "x", "--only", "merge"): "x/written.onnx",
        ("pull", MODEL, out / "y"): "y",
    },
    "records": lambda model, out: {("records", model.with_suffix(".tfrecord"), "0", "-o", out / "x"): "x"},
    "schema show": lambda model, out: {("schema", "show", "written", "-o", out / "x"): "x"},
}
"""For each command, its call and the file that the call writes."""
RESUMED: Final = {"y"}
"""Files of `pull` that another pull continues."""


def commands(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """All commands of the program by name."""
    for name, each in group.commands.items():
        full = f"{above} {name}".strip()
        if hasattr(each, "commands"):
            yield from commands(each, full)
        else:
            yield full, each


@pytest.fixture(scope="module")
def model(call: Call, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "written.onnx"
    path.write_bytes(onnx(4000, 8000))
    call("push", path, "--tag", MODEL.removeprefix("@"))
    path.with_suffix(".tfrecord").write_bytes(FRAMED["tfrecord"]([b"\x08\x07"]))
    empty = path.with_suffix(".binpb")
    empty.write_bytes(b"\x0a\x11\x0a\x07a.proto\x12\x01p\x22\x03\x0a\x01M")
    call("schema", "put", "written", empty)
    return path


def test_every_command_with_an_output_is_known() -> None:
    found = dict(commands(typer.main.get_command(app)))
    named = {
        name
        for name, each in found.items()
        if any("out" in param.name.split("_") or str(param.metavar).startswith("OUT") for param in each.params)
    }
    assert named == COMMANDS.keys()
    for name in named:
        assert "--force" in {option for param in found[name].params for option in param.opts}, name


class Disk:
    """A record of the calls that make files durable, in their order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, object]] = []
        fsync, replace = os.fsync, os.replace

        def synced(fd: int) -> None:
            found = os.fstat(fd)
            self.calls.append(("folder" if stat.S_ISDIR(found.st_mode) else "file", found.st_ino))
            fsync(fd)

        def replaced(source: Any, target: Any, **more: Any) -> None:
            self.calls.append(("name", os.path.abspath(target)))
            replace(source, target, **more)

        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "replace", replaced)

    def check(self, path: Path) -> None:
        """Assert that a file's content was durable before its name, and its name at the end."""
        named = self.calls.index(("name", str(path)))
        assert ("file", path.stat().st_ino) in self.calls[:named], "the content was not on the disk before the name"
        assert ("folder", path.parent.stat().st_ino) in self.calls[named:], "the name was not on the disk"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_replaces_no_file_and_what_it_writes_is_durable(
    name: str, call: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for args, written in COMMANDS[name](model, tmp_path).items():
        path = tmp_path / written
        path.parent.mkdir(exist_ok=True)
        disk = Disk(monkeypatch)
        done = call(*args)
        made = path.read_bytes()
        assert f"{path}: {format_size(len(made))}" in done.stdout + done.stderr
        assert (done.stdout + done.stderr).count(f"{path}: ") == 1, "said once"
        disk.check(path)
        monkeypatch.undo()
        if name != "pull" or written not in RESUMED:
            path.write_bytes(b"precious")
            refused = call(*args, code=7)
            assert f"{path} already exists" in refused.stderr
            assert "--force" in refused.stderr
            assert path.read_bytes() == b"precious"
            call(*args, "--force")
            assert path.read_bytes() == made


def test_files_of_messages_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    message.node.add(name="a").attr["value"].s = bytes(2 << 20)
    disk = Disk(monkeypatch)
    written = Path(GraphDefSplitter(message).write(tmp_path / "model"))
    disk.check(written)


def test_folders_of_the_user_are_private_whatever_the_umask(
    call: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE", "CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home" / name))
    before = os.umask(0)
    try:
        call("push", model, "--tag", "open:1", XDG_STATE_HOME=str(tmp_path / "home" / "STATE"))
        call("pull", MODEL, tmp_path / "x", "--cache", tmp_path / "home" / "pieces")
        call("login", given="psl_none\n", XDG_CONFIG_HOME=str(tmp_path / "home" / "CONFIG"))
    finally:
        os.umask(before)
    found = {path.relative_to(tmp_path) for path in (tmp_path / "home").rglob("*") if path.stat().st_mode & 0o022}
    assert not found, "others may write here"


PATH = "graph.initializer[0].raw_data"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Write an ONNX model with one value of 2 GiB, as a hole in the file."""
    data = b""
    size = LARGEST_MESSAGE + 1
    for number in (9, 5, 7):
        data = varint(number << 3 | 2) + varint(size + len(data)) + data
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + size)
    return path


def test_the_library_warns_of_a_chunk_that_no_runtime_parses(large: Path) -> None:
    with protoslice.open(large) as proto:
        with pytest.warns(LargeChunkWarning, match=r"chunk graph\.initializer\[0\]\.raw_data has 2147483648 bytes"):
            proto.chunks.cpb()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert proto.split(min_chunk=1 << 40, max_chunk=1 << 41).problem is not None


def test_the_command_line_names_the_chunk(call: Any, large: Path) -> None:
    done = call("chunks", large, "--json")
    assert [chunk["path"] for chunk in json.loads(done.stdout)][-1] == PATH
    assert f"note: chunk {PATH} has 2147483648 bytes" in done.stderr


def test_a_split_that_writes_such_a_chunk_says_so(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.library.proto.LARGEST_MESSAGE", 100)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x3a\xb2\x01\x2a\xaf\x01\x4a\xac\x01" + bytes(172))
    for least in ("64B", "1MiB"):  # several chunks, and a single one
        done = call("split", path, tmp_path / "out", "--min-chunk", least)
        assert done.stderr.count("protobuf runtimes parse at most 100") == 1, done.stderr


def test_size_problem_names_only_chunks_that_runtimes_cannot_parse() -> None:
    assert PATH in (size_problem(PATH, LARGEST_MESSAGE + 1) or "")
    assert size_problem(PATH, LARGEST_MESSAGE) is None

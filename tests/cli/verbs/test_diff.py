"""`diff`: differences are named by path, and equal content is not fetched."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tests.support import bundles
from tests.support.bundles import Variable, bundle
from tests.support.wire import Fault, FaultyProxy, faulty_proxy

from protoslice import _core, schema
from protoslice.client import Client

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def proxy(service: str) -> Iterator[FaultyProxy]:
    """Run a proxy that counts the transferred bytes."""
    with faulty_proxy(service) as proxy:
        yield proxy


def _found(done: Any) -> list[tuple[str, str, str]]:
    return [(each["change"], each["what"], each["path"]) for each in json.loads(done.stdout)["differences"]]


EXPECTED = [
    ("changed", "file", "graph.pb"),
    ("changed", "tensor", "constant_2"),
    ("added", "tensor", "constant_4"),
    ("added", "part", "node[4]"),
]


def test_files_and_stores_differ_in_the_same(call: Any, service: str, store: str, model: Path, changed: Path) -> None:
    with Client(service) as client:
        client.push(changed, tags=["changed:1"], min_chunk="64KiB")
    for one in (model, store):
        for other in (changed, "@changed:1"):
            assert _found(call("diff", one, other, "--json", code=8)) == EXPECTED, (one, other)
        for same in (model, store):
            assert call("diff", one, same).stdout == "equal\n"
            assert json.loads(call("diff", one, same, "--json").stdout) == {"equal": True, "differences": []}
    shown = call("diff", "@changed:1", store, code=8).stdout
    for names in ((model, changed), (store, "@changed:1")):
        for only, count in {"file": 1, "tensor": 2, "part": 1}.items():
            assert len(_found(call("diff", *names, "--only", only, "--json", code=8))) == count
    assert "removed  tensor      400 B" in shown


def test_changed_tensors_are_shown_with_the_length_of_their_change(
    call: Any, service: str, store: str, tmp_path: Path
) -> None:
    arrays = {f"w{n}": np.full(2000, 2, "<f4") for n in range(4)}
    moved = {**arrays, "w1": arrays["w1"] * np.float32(1.25), "w2": arrays["w2"] * np.float32(1.5)}
    paths = []
    for number, tensors in enumerate((arrays, {**moved, "new": arrays["w0"]}), 1):
        made = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
        (tmp_path / str(number)).mkdir()
        paths.append(tmp_path / str(number) / "model.onnx")
        paths[-1].write_bytes(helper.make_model(helper.make_graph([], "main", [], [], made)).SerializeToString())
        call("push", paths[-1], "--tag", f"moved:{number}")
    for one, other in (paths, ("@moved:1", "@moved:2"), (paths[0], "@moved:2")):
        shown = call("diff", one, other, "--only", "tensor", code=8).stdout
        assert "w1  relative change 25 %, max |Δ| 0.5\n" in shown
        assert "file" not in shown
        summary = call("diff", one, other, "--summary", code=8).stdout.splitlines()
        assert "2 tensors changed, 1 tensor added" in summary[0]
        assert [line.split() for line in summary[3:]] == [
            ["50", "%", "1", "0", "w2"],
            ["25", "%", "0.5", "0", "w1"],
        ]
        page = re.search(r"METRICS = \{(.*?)\}", (ROOT / "web/src/xray/moves.ts").read_text())
        assert page is not None
        named = {each.lower() for each in re.findall('"(.*?)"', page[1])}
        assert {*re.split("  +", summary[2].lower())[:3]} < named, "the page has the same words"
        assert {
            each["what"]
            for each in json.loads(call("diff", one, other, "--only", "file", "--json", code=8).stdout)["differences"]
        } == {"file"}
    assert call("diff", paths[0], paths[0], "--summary").stdout == "no differences\n"
    assert call("diff", paths[0], paths[0]).stdout == "equal\n"


def test_a_change_from_zero_has_no_share(call: Any, tmp_path: Path) -> None:
    places = tmp_path / "zero", tmp_path / "one"
    for place, number in zip(places, (0, 1), strict=True):
        place.mkdir()
        for file, data in bundle("v", [Variable("w", 1, (1,), struct.pack("<f", number))]).items():
            (place / file).write_bytes(data)
    assert "w  relative change from 0, max |Δ| 1\n" in call("diff", *places, "--only", "tensor", code=8).stdout
    assert "from 0  " in call("diff", *places, "--summary", code=8).stdout


def test_what_is_equal_is_not_fetched(call: Any, store: str, proxy: FaultyProxy, changed: Path) -> None:
    address = f"{proxy.url}/v1/stores/model:1"
    call("diff", address, changed, code=8)
    # 137 051 bytes: the blocks of 16 KiB that no local piece holds, and a sample of the changed tensor.
    assert 0 < proxy.sent_down < 160_000, "of 1.2 MB"


def test_small_things_are_named_by_path(call: Any, store: str, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "graph.pb"
    other.write_bytes(model.read_bytes().replace(b"Const", b"Other", 1))
    told = json.loads(call("diff", store, other, "--json", code=8).stdout)["differences"]
    parts = [each for each in told if each["what"] != "file"]
    assert ("part", "node[0].op") in {(each["what"], each["path"]) for each in parts}


def test_what_moves_is_no_difference_but_of_the_file(call: Any, store: str, model: Path, tmp_path: Path) -> None:
    message: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    message.ParseFromString(model.read_bytes())
    del message.node[0]
    other = tmp_path / "graph.pb"
    other.write_bytes(message.SerializeToString())
    assert _found(call("diff", store, other, "--json", code=8)) == [
        ("changed", "file", "graph.pb"),
        ("removed", "tensor", "constant_0"),
        ("removed", "part", "node[0]"),
    ]


def test_another_shape_is_told(call: Any, tmp_path: Path) -> None:
    paths = []
    for name, shape in (("one", (4, 25)), ("two", (100,))):
        for file, data in bundle("v", [Variable("weight", 1, shape, bytes(400))]).items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / file).write_bytes(data)
        paths.append(tmp_path / name)
    assert "weight  F32 4×25 → F32 100" in call("diff", *paths, code=8).stdout


def test_what_is_not_there_cannot_differ(call: Any, store: str, tmp_path: Path) -> None:
    call("diff", store, tmp_path / "absent.pb", code=4)
    call("diff", "@absent", store, code=4)


def test_protos_that_are_no_models_are_compared_too(call: Any, service: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one.pb", tmp_path / "other.pb"
    one.write_bytes(b"\x0a\x03abc\x10\x07")
    other.write_bytes(b"\x0a\x03abc\x10\x09")
    call("push", one, "--tag", "plain:1")
    for before in (one, "@plain:1"):
        assert _found(call("diff", before, other, "--json", code=8)) == [
            ("changed", "file", "other.pb"),
            ("changed", "part", "2"),
        ]


Make = Callable[..., Path]


@pytest.fixture
def onnx(tmp_path: Path) -> Make:
    """Return a function that writes a network of unnamed nodes, after a change to the message."""

    def make(name: str, change: Callable[[Any], object] = lambda _: None, size: int = 100_000) -> Path:
        message: Any = schema.bundled().message_class("onnx.ModelProto")()
        message.ir_version = 8
        content = random.Random(7)
        for number in range(6):
            node = message.graph.node.add(op_type="Gemm", input=[f"in{number}", f"w{number}"])
            node.attribute.add(name="alpha", type=6).floats.extend([0.25, number])
            tensor = message.graph.initializer.add(name=f"w{number}", data_type=1, dims=[size // 4])
            tensor.raw_data = content.randbytes(size)
        change(message)
        (tmp_path / name).write_bytes(message.SerializeToString())
        return tmp_path / name

    return make


def _within(done: Any) -> list[tuple[str, str, str]]:
    return [each for each in _found(done) if each[1] != "file"]


@pytest.fixture
def both_ways(call: Any, tmp_path: Path) -> Callable[..., list[tuple[str, str, str]]]:
    """Return the differences between two files; assert that stores in place of files give the same."""

    def compare(one: Path, other: Path) -> list[tuple[str, str, str]]:
        for path, tag in ((one, "way:1"), (other, "way:2")):
            call("push", path, "--tag", tag, "--min-chunk", "64KiB")
        code = 8
        ways = [(one, other), (one, "@way:2"), ("@way:1", other), ("@way:1", "@way:2")]
        found = [_within(call("diff", *way, "--json", code=code)) for way in ways]
        assert found[1:] == found[:-1]
        return found[0]

    return compare


def test_one_value_of_many_is_found(onnx: Make, both_ways: Any) -> None:
    def change(message: Any) -> None:
        message.graph.node[3].attribute[0].floats[1] = 99

    assert both_ways(onnx("a.onnx"), onnx("b.onnx", change)) == [
        ("changed", "part", "graph.node[3].attribute[0].floats")
    ]


def test_nodes_without_names_are_known_by_what_they_are(onnx: Make, both_ways: Any) -> None:
    def insert(message: Any) -> None:
        nodes = list(message.graph.node)
        del message.graph.node[:]
        message.graph.node.add(op_type="Relu")
        message.graph.node.extend(nodes)

    assert both_ways(onnx("a.onnx"), onnx("b.onnx", insert)) == [("added", "part", "graph.node[0]")]


def test_another_order_is_told_once(onnx: Make, both_ways: Any) -> None:
    def turn(message: Any) -> None:
        nodes = list(message.graph.node)
        del message.graph.node[:]
        message.graph.node.extend(reversed(nodes))

    assert both_ways(onnx("a.onnx"), onnx("b.onnx", turn)) == [("reordered", "part", "graph.node")]


def test_a_tensor_by_another_name_is_no_other_one(onnx: Make, both_ways: Any, call: Any, tmp_path: Path) -> None:
    def rename(message: Any) -> None:
        message.graph.initializer[2].name = message.graph.node[2].input[1] = "kernel"

    assert both_ways(onnx("a.onnx"), onnx("b.onnx", rename)) == [
        ("renamed", "tensor", "kernel"),
        ("changed", "part", "graph.node[2].input[1]"),
    ]
    assert "was w2" in call("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", code=8).stdout


def test_tensors_are_added_and_removed(onnx: Make, both_ways: Any) -> None:
    def change(message: Any) -> None:
        del message.graph.initializer[1]
        message.graph.initializer.add(name="new", data_type=1, dims=[2], raw_data=bytes(8))

    assert both_ways(onnx("a.onnx"), onnx("b.onnx", change)) == [
        ("added", "tensor", "new"),
        ("removed", "tensor", "w1"),
    ]


def test_the_same_written_in_another_way_is_told_to_be(onnx: Make, call: Any, tmp_path: Path) -> None:
    one, other = onnx("a.onnx"), tmp_path / "b.onnx"
    data = one.read_bytes()
    other.write_bytes(data[2:] + data[:2])  # the version, which comes after the graph
    shown = call("diff", one, other, code=8).stdout
    assert "the content is equal, but encoded differently" in shown
    assert _found(call("diff", one, other, "--json", code=8)) == [("changed", "file", "b.onnx")]


def test_a_chunked_proto_is_what_it_merges_to(onnx: Make, call: Any, tmp_path: Path) -> None:
    plain = onnx("a.onnx")
    call("split", plain, tmp_path / "parts", "--min-chunk", "64KiB")
    chunked = tmp_path / "parts.cpb"
    for path, tag in ((plain, "form:1"), (chunked, "form:2")):
        call("push", path, "--tag", tag, "--min-chunk", "64KiB")
    changed = onnx("c.onnx", lambda message: message.graph.initializer.pop(3))
    for one in (plain, "@form:1"):
        for other in (chunked, "@form:2"):
            assert call("diff", one, other).stdout == "equal\n"
    for form in (chunked, "@form:2"):
        assert _within(call("diff", changed, form, "--json", code=8)) == [("added", "tensor", "w3")]


def test_what_crosses_the_wire_is_what_differs(
    onnx: Make, call: Any, service: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    def change(message: Any) -> None:
        tensor = message.graph.initializer[4]
        tensor.raw_data = tensor.raw_data[:5] + b"other" + tensor.raw_data[10:]

    one, other = onnx("a.onnx", size=4 << 20), onnx("b.onnx", change, size=4 << 20)
    for path, tag in ((one, "wire:1"), (other, "wire:2")):
        call("push", path, "--tag", tag)
    ways = [(f"{proxy.url}/v1/stores/wire:1", other), (one, f"{proxy.url}/v1/stores/wire:2")]
    ways.append((f"{proxy.url}/v1/stores/wire:1", f"{proxy.url}/v1/stores/wire:2"))
    came = []
    for way in ways:
        before = proxy.sent_down
        assert _within(call("diff", *way, "--json", code=8)) == [("changed", "tensor", "w4")]
        came.append(proxy.sent_down - before)
    assert max(came[:2]) < 200_000, "of 24 MiB"
    assert came[2] < 1 << 20, "of 48 MiB"
    proxy.done.clear()
    call("diff", f"{proxy.url}/v1/stores/wire:1", f"{proxy.url}/v1/stores/wire:1")
    assert len(proxy.done) == 1, "the digests of both stores are the same"


def _many(path: Path, change: Callable[[Any], object]) -> Path:
    """Return a network of 2500 small tensors, after a change to their list."""
    message: Any = schema.bundled().message_class("onnx.ModelProto")()
    content = random.Random(7)
    for number in range(2500):
        tensor = message.graph.initializer.add(name=f"w{number}", data_type=1, dims=[1000])
        tensor.raw_data = content.randbytes(4000)
    change(message.graph.initializer)
    path.write_bytes(message.SerializeToString())
    return path


def test_diff_fetches_few_bytes_behind_an_insertion(call: Any, proxy: FaultyProxy, tmp_path: Path) -> None:
    def change(tensors: Any) -> None:
        made = type(tensors[0])(name="new", data_type=1, dims=[3], raw_data=bytes(12))
        tensors.insert(100, made)
        tensors[1700].raw_data = tensors[1700].raw_data[:-12]
        tensors[1700].dims[0] -= 3

    one, other = _many(tmp_path / "one.onnx", lambda _: None), _many(tmp_path / "two.onnx", change)
    with Client(proxy.url) as client:
        client.push(one, tags=["many:1"])
        client.push(other, tags=["many:2"])
    changes = {("added", "new"), ("removed", "new"), ("changed", "w1699")}
    for way in ((f"{proxy.url}/v1/stores/many:1", other), (one, f"{proxy.url}/v1/stores/many:2")):
        before = proxy.sent_down
        told = json.loads(call("diff", *way, "--json", code=8).stdout)["differences"]
        found = {(each["change"], each["path"]) for each in told if each["what"] == "tensor"}
        assert len(found) == 2
        assert found < changes
        print("SENT", proxy.sent_down - before)
        # 1 886 046 bytes: the two pieces with changes, whose digests are unknown here.
        assert proxy.sent_down - before < 2_300_000, "of 10 MB"


def test_a_flipped_bit_on_the_way_is_no_difference(
    onnx: Make, call: Any, service: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    one = onnx("a.onnx")
    other = onnx("b.onnx", lambda message: message.graph.node.pop(0))
    for path, tag in ((one, "bits:1"), (other, "bits:2")):
        call("push", path, "--tag", tag)
    ways = f"{proxy.url}/v1/stores/bits:1", f"{proxy.url}/v1/stores/bits:2"
    plain = call("diff", *ways, code=8).stdout
    proxy.script = [Fault("flip", 0.3), Fault(), Fault("flip", 0.9), Fault("truncate"), Fault("flip", 0.1)] * 3
    assert call("diff", *ways, code=8).stdout == plain


def test_large_tensors_of_a_bundle_are_compared(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "crc32c", _core.crc32c)
    size = (64 << 20) + 4096
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        content = bytearray(size)
        if name == "two":
            content[size // 2] = 1
        variables = [Variable("large", 1, (size // 4,), bytes(content)), Variable("small", 1, (2,), bytes(8))]
        for file, data in bundle("variables", variables).items():
            (tmp_path / name / file).write_bytes(data)
    ways = [(tmp_path / "one", tmp_path / "two"), (tmp_path / "one/variables.index", tmp_path / "two/variables.index")]
    for way in ways:
        assert _within(call("diff", *way, "--json", code=8)) == [("changed", "tensor", "large")]


def test_a_thousand_differences_are_a_page(call: Any, tmp_path: Path) -> None:
    paths = []
    for name in ("one.pb", "two.pb"):
        message: Any = schema.bundled().message_class("tensorflow.GraphDef")()
        for number in range(1000):
            message.node.add(name=f"n{number}", op=name)
        (tmp_path / name).write_bytes(message.SerializeToString())
        paths.append(tmp_path / name)
    shown = call("diff", *paths, code=8).stdout.splitlines()
    assert len(shown) < 60
    assert shown[-1] == "… 951 more (--limit shows more, --json all); in total: 1 file changed, 1000 parts changed"
    assert len(call("diff", *paths, "--limit", "2000", code=8).stdout.splitlines()) == 1004
    assert len(_found(call("diff", *paths, "--json", code=8))) == 1001
    assert '"one.pb" → "two.pb"' in shown[-3]


def test_a_model_is_named_by_its_root_or_its_folder(call: Any, tmp_path: Path) -> None:
    names = ("one", "two")
    for name, content in zip(names, (bytes(400), bytes(399) + b"x"), strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"notes-{name}.txt").write_text("no part of it")
        for file, data in bundle("v", [Variable("weight", 1, (100,), content)]).items():
            (tmp_path / name / file).write_bytes(data)
        call("push", tmp_path / name, "--tag", f"named:{name}")
    by_root = _found(call("diff", *(tmp_path / name / "v.index" for name in names), "--json", code=8))
    by_folder = _found(call("diff", *(tmp_path / name for name in names), "--json", code=8))
    stored = _found(call("diff", *(f"@named:{name}" for name in names), "--json", code=8))
    assert by_root == [
        ("changed", "file", "v.index"),
        ("changed", "file", "v.data-00000-of-00001"),
        ("changed", "tensor", "weight"),
    ]
    notes = {("removed", "file", "notes-one.txt"), ("added", "file", "notes-two.txt")}
    assert set(by_folder) == set(stored) == {*by_root, *notes}
    assert ("changed", "tensor", "weight") in _found(
        call("diff", "@named:one", tmp_path / "two" / "v.index", "--json", code=8)
    )


def test_models_that_differ_in_another_kind_differ(call: Any, tmp_path: Path) -> None:
    for name, content in (("one", "a"), ("other", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text(content)
    names = (tmp_path / "one", tmp_path / "other")
    found = json.loads(call("diff", *names, "--only", "tensor", "--json", code=8).stdout)
    assert found == {"equal": False, "differences": []}
    shown = call("diff", *names, "--only", "tensor", code=8)
    assert (shown.stdout, "1 file changed" in shown.stderr) == ("", True)
    call("diff", names[0], names[0], "--only", "tensor")

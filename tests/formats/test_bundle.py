"""Tensor bundles: all valid output of writers is read, and all faults are reported."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.bundles import Box, Layout, Variable, bundle, crc32c, masked, table
from tests.support.golden import MODELS
from tests.support.tensors import elements, error_of, strings

from protoslice import open_model
from protoslice.detection import detect
from protoslice.errors import CorruptModel, IntegrityError, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.formats.bundle import Bundle, BundleTensors
from protoslice.sources.files import BytesSource
from protoslice.tensors.listing import row
from protoslice.tensors.model import Model, Stored, Tensor, Tiled
from protoslice.tensors.reading import read

NUMBERS = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "|u1", 5: "<i2", 6: "|i1", 8: "<c8", 9: "<i8", 10: "|b1", 17: "<u2", 18: "<c16",
    19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip


def opened(files: Mapping[str, bytes], root: str = "ck.index") -> BundleTensors:
    model = Model(root, None, {path: BytesSource(data) for path, data in files.items()}, None)
    return Bundle().tensors(model)


def one(found: BundleTensors, name: str) -> Tensor:
    (number,) = found.numbers(name)
    return found[number]


def expected(case: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MODELS / case / "expected.json").read_text())
    return loaded


# Bundles written by TensorFlow


def test_all_of_nine_thousand_tensors() -> None:
    with open_model(MODELS / "tf_ckpt_many", "many.index") as model:
        found = model.tensors
        assert len(found) == 9000
        digest = hashlib.sha256()
        for tensor in model.matching():
            assert tensor.dtype is not None
            assert tensor.shape is not None
            shape = json.dumps(list(tensor.shape), separators=(",", ":"))
            content = hashlib.sha256(elements(tensor)).hexdigest()
            digest.update(f"{tensor.name}\t{tensor.dtype.name}\t{shape}\t{content}\n".encode())
        assert digest.hexdigest() == expected("tf_ckpt_many")["bundle"]["listing_sha256"]


@pytest.mark.parametrize(("case", "root"), [("tf_ckpt_grid_slices", "ck.index"), ("tf_ckpt_v1_partitioned", None)])
def test_slices_are_those_that_were_stored(case: str, root: str | None) -> None:
    with open_model(MODELS / case, root or expected(case)["root"]) as model:
        for each in expected(case)["tensors"]:
            stored = each.get("slices_stored")
            data = model.tensor(each["where"]).data
            if stored is None:
                assert not isinstance(data, Tiled)
                continue
            assert isinstance(data, Tiled)
            shape = each["shape"]
            boxes = [
                (tuple(start for start, _ in box), tuple(n or full for (_, n), full in zip(box, shape, strict=True)))
                for box in stored
            ]
            assert [(tile.start, tile.shape) for tile in data.tiles] == boxes
            places = [tile.stored.bytes.core.pieces()[0] for tile in data.tiles]
            assert [place[1:] for place in places] == [(e["offset"], e["length"]) for e in each["slice_entries"]]


def test_variables_are_found_by_the_names_that_programs_give_them() -> None:
    with open_model(MODELS / "tf_sm_keras") as model:
        found = model.tensors
        assert sorted(found[number].name for number in found.numbers("sequential/d1/kernel")) == [
            "_all_variables/3/.ATTRIBUTES/VARIABLE_VALUE",
            "variables/0/.ATTRIBUTES/VARIABLE_VALUE",
        ]
        assert model.tensor("variables/0").name == "variables/0/.ATTRIBUTES/VARIABLE_VALUE"
        assert found.numbers("sequential/d9/kernel") == []


def test_flipped_bits_of_strings_and_numbers_are_told_with_their_place() -> None:
    """The model is damaged; an `IntegrityError` would mean damage of our storage."""
    strings = open_model(MODELS / "corrupt_bundle_string_flip", "ck.index")
    with strings, pytest.raises(CorruptModel, match="'c'") as caught:
        strings.read("c", form="json")
    assert not isinstance(caught.value, IntegrityError)
    assert (caught.value.offset, caught.value.path) == (128, "ck.data-00000-of-00001")
    with open_model(MODELS / "corrupt_bundle_data_flip", "ck.index") as model:
        with pytest.raises(CorruptModel, match="'a'") as caught:
            model.read("a")
        assert not isinstance(caught.value, IntegrityError)
        assert (caught.value.offset, caught.value.path) == (0, "ck.data-00000-of-00001")
        assert len(model.read("a", "0:1,:")) == 12  # no checksum covers a slice


@pytest.mark.parametrize(
    ("case", "kind", "offset", "match"),
    [
        ("corrupt_bundle_footer", CorruptModel, 183, "is not that of a table"),
        ("corrupt_bundle_index_flip", CorruptModel, 0, "checksum of a table block"),
    ],
)
def test_a_damaged_index_is_told_with_its_place(
    case: str, kind: type[ProtosliceError], offset: int, match: str
) -> None:
    with open_model(MODELS / case, "ck.index") as model, pytest.raises(kind, match=match) as caught:
        len(model.tensors)
    assert not isinstance(caught.value, IntegrityError)
    assert (caught.value.offset, caught.value.path) == (offset, "ck.index")


# Bundles that any writer may write


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Box]:
    """Return boxes that make up a tensor of `shape`: a grid."""
    cuts = [draw(st.sets(st.integers(1, max(1, n - 1)), max_size=2)) if n > 1 else set() for n in shape]
    parts: list[list[tuple[int, int | None]]] = []
    for length, at in zip(shape, cuts, strict=True):
        edges = [0, *sorted(at), length]
        spans: list[tuple[int, int | None]] = [(a, b - a) for a, b in pairwise(edges)]
        parts.append([(0, None)] if len(spans) == 1 and draw(st.booleans()) else spans)
    grid: list[Box] = [()]
    for spans in parts:
        grid = [(*box, span) for box in grid for span in spans]
    return draw(st.permutations(grid))


@st.composite
def bundles(draw: st.DrawFn) -> tuple[Layout, list[Variable], dict[str, Any]]:
    layout = Layout(
        block=draw(st.sampled_from([1, 60, 500, 1 << 18])),
        restart=draw(st.sampled_from([1, 2, 16, 1000])),
        snappy=draw(st.booleans()),
        shards=draw(st.integers(1, 4)),
        big_endian=draw(st.booleans()),
        gap=draw(st.integers(0, 5)),
    )
    names = draw(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), unique=True))
    variables: list[Variable] = []
    truth: dict[str, Any] = {}
    for name in names:
        shard = st.integers(0, layout.shards - 1)
        shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
        dtype = draw(st.sampled_from([*NUMBERS, 7]))
        if dtype == 7:
            count = int(np.prod(shape))
            strings = draw(st.lists(st.binary(max_size=200), min_size=count, max_size=count))
            variables.append(Variable(name, 7, shape, shard=draw(shard), strings=strings))
            truth[name] = strings
            continue
        kind = np.dtype(NUMBERS[dtype])
        rng = np.random.default_rng(draw(st.integers(0, 1000)))
        noise = np.frombuffer(rng.bytes(int(np.prod(shape)) * kind.itemsize), "|u1")
        array = (noise & 1 if dtype == 10 else noise).view(kind).reshape(shape)
        stored = array.astype(kind.newbyteorder(">")) if layout.big_endian else array
        grid = draw(boxes(shape)) if shape and array.size and draw(st.booleans()) else []
        slices = []
        for box in grid:
            at = tuple(slice(a, None if n is None else a + n) for a, n in box)
            slices.append((box, stored[at].shape, stored[at].tobytes(), draw(shard)))
        variables.append(Variable(name, dtype, shape, stored.tobytes(), draw(shard), slices=slices))
        truth[name] = array
    return layout, variables, truth


@given(st.data())
@settings(max_examples=40)
def test_what_is_written_is_read(data: st.DataObject) -> None:
    layout, variables, truth = data.draw(bundles())
    found = opened(bundle("ck", variables, layout))
    assert [found[number].name for number in range(len(found))] == sorted(truth, key=str.encode)
    for name, array in truth.items():
        tensor = one(found, f"bundle:{name}")
        if isinstance(array, list):
            assert strings(tensor) == array
            continue
        assert (tensor.shape, elements(tensor)) == (array.shape, array.tobytes())
        parts = [
            data.draw(st.tuples(st.integers(0, n), st.integers(0, n), st.integers(1, 3)), label="slice")
            for n in array.shape
        ]
        text = ",".join(f"{a}:{b}:{step}" for a, b, step in parts)
        cut = array[tuple(slice(*part) for part in parts)]
        assert elements(tensor, text) == cut.tobytes()


def shown(tensor: Tensor) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(json.dumps(row(tensor)))
    return loaded


def test_narrow_integers_are_extended_by_their_sign() -> None:
    found = opened(bundle("ck", [Variable("a", 29, [3], b"\x0f\x07\xf8"), Variable("b", 30, [2], b"\xff\x01")]))
    assert (elements(one(found, "a")), elements(one(found, "b"))) == (b"\xff\x07\xf8", b"\x0f\x01")


def test_prefixes_may_be_odd() -> None:
    files = bundle("", [Variable("a", 4, [1], b"x")])
    assert elements(one(opened(files, ".index"), "a")) == b"x"
    files = bundle("dir/x", [Variable("a", 4, [1], b"x")])
    assert one(opened(files, "dir/x.index"), "a").file == "dir/x.data-00000-of-00001"
    files["plain"] = files.pop("dir/x.index")  # no name identifies it, but its end does
    assert isinstance(error_of(one(opened(files, "plain"), "a")), NotFound)


@pytest.mark.parametrize("many", [1, 3000])
@pytest.mark.parametrize("packed", [False, True])
def test_an_index_is_known_by_its_first_bytes(packed: bool, many: int) -> None:
    variables = [Variable(f"layer/{number}", 4, [1], b"x") for number in range(many)]
    index = bundle("ck", variables, Layout(snappy=packed))["ck.index"]
    assert detect(index[:65536], "upload", None).kind == "table"


def test_names_that_are_no_text() -> None:
    files = bundle("ck", [])
    entry = {b"": files_header(files), b"a\xff": b"\x08\x04\x12\x00", b'b"\\': b"\x08\x04\x12\x00"}
    files["ck.index"] = table(sorted(entry.items()))
    found = opened(files)
    assert [found[number].name for number in range(2)] == ["a\\xff", 'b"\\']
    assert found.numbers("a\\xff") == found.numbers("bundle:a\\xff") == [0]


def files_header(_: Mapping[str, bytes]) -> bytes:
    return b"\x08\x01\x1a\x02\x08\x01"


# Bundles that must be refused

GRID: list[tuple[Box, list[int], bytes, int]] = [(((0, 2), (0, None)), [2, 3], bytes(6), 0)]
FAULTS: list[tuple[Variable, type[ProtosliceError], str]] = [
    (Variable("a", 1, [3], bytes(11)), CorruptModel, "takes 12 bytes"),
    (Variable("a", 1, [-1], b""), CorruptModel, "is invalid or unknown"),
    (Variable("a", 1, [1 << 40, 1 << 40], b""), CorruptModel, "is invalid or unknown"),
    (Variable("a", 999, [1], bytes(4)), CorruptModel, "no data type 999"),
    (Variable("a", 20, [], bytes(4)), Unsupported, "resource"),
    (Variable("a", 21, [], bytes(4)), Unsupported, "variant"),
    (Variable("a", 4, [2], slices=GRID), CorruptModel, "one of its slices has 2"),
    (Variable("a", 7, [4, 3], slices=GRID), CorruptModel, "not possible for strings"),
    (Variable("a", 4, [4, 4], slices=GRID), CorruptModel, "a different type or shape"),
]


@pytest.mark.parametrize(("variable", "kind", "match"), FAULTS)
def test_what_is_wrong_with_one_tensor_is_told_when_it_is_read(
    variable: Variable, kind: type[ProtosliceError], match: str
) -> None:
    found = opened(bundle("ck", [variable, Variable("z", 4, [1], b"z")]))
    with pytest.raises(kind, match=match):
        read(one(found, "a"))
    assert re.search(match, shown(found[0])["problem"])
    assert elements(one(found, "z")) == b"z"


@pytest.mark.parametrize(
    "grid",
    [
        [((0, 2), (0, None))],
        [((0, 2), (0, None)), ((1, 3), (0, None))],
        [((0, 4), (0, 2)), ((0, 4), (1, 2))],
        [((0, 4), (0, 2)), ((0, 2), (2, 1))],
        [((0, 2), (0, None)), ((3, 2), (0, None))],
    ],
)
def test_slices_that_do_not_make_up_the_tensor_are_refused(grid: list[Box]) -> None:
    parts = []
    for box in grid:
        lengths = [3 if length is None else length for _, length in box]
        parts.append((box, lengths, bytes(int(np.prod(lengths))), 0))
    found = opened(bundle("ck", [Variable("a", 4, [4, 3], slices=parts)]))
    with pytest.raises(CorruptModel):
        elements(one(found, "a"))


def test_a_slice_that_is_missing_is_told() -> None:
    files = bundle("ck", [Variable("a", 4, [2, 3], slices=GRID)])
    entries = {b"": files_header(files), b"a": whole_entry()}
    files["ck.index"] = table(sorted(entries.items()))
    assert "missing" in error_of(one(opened(files), "a")).message


def whole_entry() -> bytes:
    return bytes.fromhex("0804120812020802120208033a060a0210020a00")


Damage = Callable[[bytes], bytes]
DAMAGES: list[tuple[str, Layout, type[ProtosliceError]]] = [
    ("cannot be read by version 1", Layout(version={"min_consumer": 2}), Unsupported),
    ("cannot be read by version 1", Layout(version={"producer": 2, "bad_consumers": [300, 1]}), Unsupported),
]


@pytest.mark.parametrize(("match", "layout", "kind"), DAMAGES)
def test_bundles_for_other_programs_are_refused(match: str, layout: Layout, kind: type[ProtosliceError]) -> None:
    with pytest.raises(kind, match=match):
        opened(bundle("ck", [], layout))


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ([], "empty"),
        ([(b"", b"")], "no shards"),
        ([(b"a", b"")], "does not start with its header"),
        ([(b"", b"\x08\x01"), (b"b", b""), (b"a", b"")], "out of order"),
        ([(b"", b"\x08\x01"), (b"a", b""), (b"a", b"")], "out of order"),
    ],
)
@pytest.mark.parametrize("block", [1, 4096])
def test_indexes_that_are_none_are_refused(entries: list[tuple[bytes, bytes]], match: str, block: int) -> None:
    with pytest.raises(CorruptModel, match=match):
        opened({"ck.index": table(entries, Layout(block=block))})


def test_names_that_repeat_each_other_without_end_are_refused() -> None:
    long = b"n" * 1000
    entries = [(b"", b"\x08\x01"), *((long + bytes([a, b]), b"") for a in range(16) for b in range(256))]
    packed = table(entries, Layout(block=1 << 30, restart=1 << 30))
    assert len(packed) < 1 << 18
    with pytest.raises(LimitExceeded, match="too many names"):
        opened({"ck.index": packed})


def test_a_checksum_is_compared_once() -> None:
    found = opened(bundle("ck", [Variable("a", 4, [3], b"abc")]))
    tensor = one(found, "a")
    assert isinstance(tensor.data, Stored)
    assert tensor.data.compare is not None
    tensor.data.compare()
    assert elements(tensor) == elements(one(found, "a")) == b"abc"


def test_an_empty_tensor_vouches_for_no_other() -> None:
    """The empty tensor is where the next tensor begins."""
    files = bundle("ck", [Variable("a", 4, [0], b""), Variable("b", 4, [3], b"abc")])
    (shard,) = (name for name in files if "data" in name)
    found = opened({**files, shard: b"abX"})
    assert elements(one(found, "a")) == b""
    with pytest.raises(CorruptModel, match="'b'"):
        elements(one(found, "b"))


def test_long_numbers_of_slices() -> None:
    box: Box = ((0, 70_000),)
    files = bundle("ck", [Variable("a", 4, [70_000], slices=[(box, [70_000], bytes(70_000), 0)])])
    assert elements(one(opened(files), "a"), "69999:") == b"\0"


def stored(tensor: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(tensor, None, "json").bytes.read())
    assert found | shown(tensor) == found or "values" in found
    entry: dict[str, Any] = found["stored"]
    return entry


def test_the_entry_of_a_tensor_is_told() -> None:
    half, box = bytes(range(24)), ((0, 2), (0, None))
    variables = [
        Variable("a", 1, (2, 3), bytes(24)),
        Variable("b", 1, (3,), bytes(12), shard=1),
        Variable("c", 7, (1,), strings=[b"x"]),
        Variable("p", 1, (4, 3), slices=[(box, (2, 3), half, 1), (((2, 2), (0, None)), (2, 3), half, 1)]),
    ]
    found = opened(bundle("ck", variables, Layout(shards=2)))
    assert stored(one(found, "a")) == {"shard": 0, "offset": 0, "size": 24, "crc32c": masked(crc32c(bytes(24)))}
    assert stored(one(found, "b")) == {"shard": 1, "offset": 0, "size": 12, "crc32c": masked(crc32c(bytes(12)))}
    assert (stored(one(found, "c"))["offset"], stored(one(found, "c"))["size"]) == (24, 6)
    parts = stored(one(found, "p"))["slices"]
    assert parts[1] == {
        "extents": [{"start": 2, "length": 2}, {"start": 0, "length": None}],
        "shard": 1, "offset": 36, "size": 24, "crc32c": masked(crc32c(half)),
    }  # fmt: skip


def test_the_entry_of_a_tensor_is_told_without_its_shard() -> None:
    files = bundle("ck", [Variable("a", 1, (2, 3), bytes(24))])
    found = opened({"ck.index": files["ck.index"]})
    assert stored(one(found, "a"))["size"] == 24
    assert "problem" in shown(one(found, "a"))

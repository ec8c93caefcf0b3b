"""Masks and omissions leave the same bytes in the same order as the protobuf runtime would."""

from random import Random
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos import (
    ROOT,
    Case,
    Step,
    canonical,
    cases,
    clear_large,
    descriptor_of,
    is_subsequence,
    masked,
    path_of,
    places,
    pruned,
    random_path,
    tokens,
    without_large,
)
from tests.support.stores import field

import protoslice
from protoslice import _core, schema
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.schema import from_descriptor_set
from protoslice.sources.files import BytesSource
from protoslice.sources.ropes import Rope


def opened(case: Case) -> protoslice.Proto:
    return protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)


@given(cases(), st.integers(1, 6))
def test_a_mask_keeps_what_it_names_in_order(case: Case, count: int) -> None:
    message = case.message()
    paths = [path for _ in range(count) if (path := random_path(message, case.rng))]
    got = opened(case).merge(fields=[path_of(path) for path in paths]).read()
    shown = [path_of(path) for path in paths]
    assert canonical(case.root.FromString(got)) == canonical(masked(message, paths) if paths else case.root()), shown
    assert is_subsequence(tokens(got, descriptor_of(case.root)), tokens(case.data, descriptor_of(case.root))), shown


def known(message: Message) -> Any:
    """Return the message without unknown fields, in a form to compare."""
    message.DiscardUnknownFields()
    return canonical(message)


@given(cases(), st.integers(1, 6))
def test_paths_that_are_left_out_are_cleared(case: Case, count: int) -> None:
    message = case.message()
    paths = [path for _ in range(count) if (path := random_path(message, case.rng))]
    shown = [path_of(path) for path in paths]
    got = opened(case).merge(omit=shown).read()
    assert known(case.root.FromString(got)) == known(pruned(message, paths)), shown
    assert is_subsequence(tokens(got, descriptor_of(case.root)), tokens(case.data, descriptor_of(case.root))), shown


@given(cases())
def test_paths_are_left_out_of_a_mask(case: Case) -> None:
    message = case.message()
    paths = [path for _ in range(4) if (path := random_path(message, case.rng))]
    kept, gone = paths[::2], paths[1::2]
    shown = [path_of(path) for path in kept], [path_of(path) for path in gone]
    if kept and gone:
        got = case.root.FromString(opened(case).merge(fields=shown[0], omit=shown[1]).read())
        whole = case.root.FromString(opened(case).merge(omit=shown[1]).read())
        assert known(got) == known(masked(whole, kept)) or _by_position(kept), shown


def _by_position(paths: list[list[Step]]) -> bool:
    """Return True if a path selects elements by number, as numbers refer to the whole message."""
    return any(step.index is not None or step.bounds is not None for path in paths for step in path)


@given(cases())
def test_a_mask_below_a_path(case: Case) -> None:
    proto = opened(case)
    for place in list(places(case.message(), case.rng))[:12]:
        if isinstance(place.value, Message) and len(place.path) < 4000:
            path = random_path(place.value, case.rng)
            got = proto.merge(place.path, fields=[path_of(path)] if path else []).read()
            due = masked(place.value, [path]) if path else type(place.value)()
            assert canonical(type(place.value).FromString(got)) == canonical(due), (place.path, path_of(path))


@given(cases())
def test_simple_masks_agree_with_the_runtimes_own(case: Case) -> None:
    message = case.message()
    paths = [path for _ in range(3) if (path := _simple(random_path(message, case.rng)))]
    got = case.root.FromString(opened(case).merge(fields=[path_of(path) for path in paths]).read())
    mask = FieldMask(paths=[".".join(step.field.name for step in path) for path in paths])
    due, ours = case.root(), case.root()
    mask.MergeMessage(message, due)
    mask.MergeMessage(got, ours)
    assert canonical(ours) == canonical(due), mask.paths
    assert canonical(got) == canonical(masked(message, paths) if paths else due)


def _simple(path: list[Step]) -> list[Step]:
    """Return the part of `path` that a `FieldMask` can express: names of singular messages, and one field."""
    out = []
    for step in path:
        out.append(Step(step.field))
        if step.field.is_repeated or step.field.message_type is None:
            break
    return out


@given(cases(), st.sampled_from([0, 1, 3, 20, 63, 64, 200, 5000]))
def test_what_is_omitted_is_what_is_large(case: Case, limit: int) -> None:
    got = opened(case).merge(omit_larger_than=limit).read()
    due = without_large(case.data, descriptor_of(case.root), limit)
    assert canonical(case.root.FromString(got)) == canonical(case.root.FromString(due))
    assert is_subsequence(tokens(got, descriptor_of(case.root)), tokens(case.data, descriptor_of(case.root)))


@given(cases(), st.sampled_from([0, 1, 3, 20, 63, 64, 200, 5000]))
def test_what_is_left_is_the_message_with_its_large_fields_cleared(case: Case, limit: int) -> None:
    got = case.root.FromString(opened(case).merge(omit_larger_than=limit).read())
    due = case.message()
    for message in (got, due):
        message.DiscardUnknownFields()
    clear_large(due, limit)
    shown = type(got)()
    shown.CopyFrom(got)
    clear_large(shown, 1 << 30)  # drops only the repeated numbers
    assert canonical(shown) == canonical(due)


@pytest.mark.parametrize("fields", [None, ["tensor_content", "version_number"]])
@pytest.mark.parametrize("floor", [1, 16384])
def test_an_earlier_value_does_not_show_when_the_last_is_left_out(fields: list[str] | None, floor: int) -> None:
    kind = "tensorflow.TensorProto"
    small, large = b"\x22\x03old", b"\x22\x40" + bytes(64)
    proto = protoslice.open(small + b"\x18\x07" + large + b"\x18\x08", kind, floor=floor)
    assert proto.merge(fields=fields, omit_larger_than=8).read() == b"\x18\x07\x18\x08"
    proto = protoslice.open(large + small, kind, floor=floor)
    assert proto.merge(fields=fields, omit_larger_than=8).read() == small
    proto = protoslice.open(small + small, kind, floor=floor)
    assert proto.merge(fields=fields, omit_larger_than=8).read() == small + small


@pytest.mark.parametrize("fields", [None, ["tensor", "s"]])
@pytest.mark.parametrize("floor", [1, 16384])
def test_pieces_of_a_message_are_looked_at_together(fields: list[str] | None, floor: int) -> None:
    """An `AttrValue` has either the tensor (8) or the text (2) in its oneof."""
    first, number, second = b"\x42\x05\x22\x03old", b"\x18\x07", b"\x42\x42\x22\x40" + bytes(64)
    proto = protoslice.open(first + second, "tensorflow.AttrValue", floor=floor)
    assert proto.merge(fields=fields, omit_larger_than=8).read() == b"\x42\x00\x42\x00"
    text = b"\x12\x40" + bytes(64)
    proto = protoslice.open(first + text, "tensorflow.AttrValue", floor=floor)
    assert proto.merge(fields=fields, omit_larger_than=8).read() == b""
    proto = protoslice.open(first + text + first + number, "tensorflow.AttrValue", floor=floor)
    assert proto.merge(omit_larger_than=8).read() == first + number


@given(cases(), st.sampled_from([1, 64, 5000]))
def test_a_mask_and_an_omission_together(case: Case, limit: int) -> None:
    message = case.message()
    path = random_path(message, case.rng)
    fields = [path_of(path)] if path else []
    both = opened(case).merge(fields=fields, omit_larger_than=limit).read()
    kept = opened(case).merge(fields=fields).read()
    due = without_large(kept, descriptor_of(case.root), limit)
    assert canonical(case.root.FromString(both)) == canonical(case.root.FromString(due)), fields


@given(cases())
def test_a_mask_of_everything_changes_nothing(case: Case) -> None:
    proto = opened(case)
    names = [field.name for field in case.root.DESCRIPTOR.fields]
    got = proto.merge(fields=names).read()
    assert is_subsequence(tokens(got, descriptor_of(case.root)), tokens(case.data, descriptor_of(case.root)))
    whole, due = case.root.FromString(got), case.message()
    for message in (whole, due):
        message.DiscardUnknownFields()
    assert canonical(whole) == canonical(due)
    assert proto.merge(fields=[]).read() == b""


@pytest.mark.parametrize(
    ("fields", "error", "word"),
    [
        (["no_such"], NotFound, "no field"),
        ([""], InvalidInput, "empty"),
        (["message.chunked_fields[0"], InvalidInput, "bracket"),
        (["message.chunk_index.x"], NotFound, "has no fields"),
        (["message[3]"], NotFound, "not repeated"),
        (["version.bad_consumers[0]"], Unsupported, "packed"),
    ],
)
def test_masks_that_cannot_be_are_refused(fields: list[str], error: type[ProtosliceError], word: str) -> None:
    kind = "tensorflow.proto_splitter.ChunkMetadata"
    data = bytes.fromhex("0a041a0201021a06080012021a00")
    proto = protoslice.open(data, kind, floor=1)
    with pytest.raises(error, match=word):
        proto.merge(fields=fields)


def test_fields_are_a_list() -> None:
    with pytest.raises(InvalidInput, match="not a single path"):
        protoslice.open(b"", "tensorflow.TensorProto").merge(fields="dtype")


def graph(count: int) -> bytes:
    """Return a `tensorflow.GraphDef` whose nodes have a name, an op and two inputs; every third node has no op."""
    nodes = []
    for number in range(count):
        op = field(2, b"op%d" % number) if number % 3 else b""
        nodes.append(field(1, field(1, b"n%d" % number) + op + field(3, b"a") + field(3, b"b")))
    return b"".join(nodes)


def document(data: bytes, *, steps: int, floor: int = 16384) -> _core.Document:
    """Return the graph in `data` as a document; a mask on it may take this many steps."""
    source, flat = BytesSource(data), schema.bundled().flat("tensorflow.GraphDef")
    rope = _core.Rope([(0, 0, source.size)])
    index = _core.Index(_core.index_source([source], rope, flat, "tensorflow.GraphDef", floor=floor))
    return _core.Document(index, flat, [source], limits=_core.Limits(steps=steps))


@pytest.mark.parametrize("floor", [1, 16384])
@pytest.mark.parametrize("seed", range(30))
def test_selections_that_overlap_keep_what_any_of_them_keeps(seed: int, floor: int) -> None:
    random, count = Random(seed), 40
    data = graph(count)
    kept: list[set[str]] = [set() for _ in range(count)]
    fields = []
    for _ in range(random.randrange(1, 12)):
        name = random.choice(["name", "op", "input", "input[1]"])
        first, last = sorted(random.sample(range(count + 5), 2))
        which, select = random.choice([
            (range(count), ""),
            (range(count), "[*]"),
            (range(first, min(last, count)), f"[{first}:{last}]"),
            (range(first, count), f"[{first}:]"),
            (range(first, min(first + 1, count)), f"[{first}]"),
            (range(first, min(first + 1, count)), f'[name="n{first}"]'),
        ])  # fmt: skip
        fields.append(f"node{select}.{name}")
        for number in which:
            kept[number].add(name)
    graph_def: Any = schema.bundled().message_class("tensorflow.GraphDef")
    due = graph_def()
    for node, names in zip(graph_def.FromString(data).node, kept, strict=True):
        if names:
            left = due.node.add(name=node.name if "name" in names else "", op=node.op if "op" in names else "")
            left.input.extend(node.input if "input" in names else node.input[1:] if "input[1]" in names else [])
    rope = document(data, steps=1 << 24, floor=floor).view("", fields)[2]
    got = bytes(Rope(rope, [BytesSource(data)]))
    assert got == due.SerializeToString(), fields


@pytest.mark.parametrize("floor", [1, 1 << 20])
@pytest.mark.parametrize(
    "fields",
    [
        [f"1[{number}:].1" for number in range(400)],
        [f"1[*].{number}" for number in range(1, 400)],
        [f"1[{number}].1" for number in range(0, 20_000, 50)],
        [f"1[{number}:{number + 9}].{number % 3 + 1}" for number in range(400)],
        ["node[*].name", "node[*].op", "node[*].input", "node[*].device", "node[*].attr"],
    ],
    ids=["slices", "numbers", "elements", "overlaps", "names"],
)
def test_many_masks_take_few_steps_for_each_element(fields: list[str], floor: int) -> None:
    """The work is that of one walk plus some per two masks, and not that of all masks at each element."""
    count = 20_000
    data = graph(count)
    rope = document(data, steps=30 * count + 3 * 400**2, floor=floor).view("", fields)[2]
    assert rope.size > 0


def test_more_steps_than_are_allowed_are_refused() -> None:
    data = graph(20_000)
    with pytest.raises(LimitExceeded, match=r"more than 100000 steps of work.*fewer fields, or fewer elements"):
        document(data, steps=100_000).view("", ["node[*].name"])
    absent = [f'node[op="x{number}"].name' for number in range(400)]
    with pytest.raises(LimitExceeded, match="steps"):
        document(data, steps=20_000 * 100, floor=1 << 20).view("", absent)
    with pytest.raises(LimitExceeded, match="steps"):
        document(b"", steps=100_000).view("", [f"node[{number}:].name" for number in range(400)])
    assert document(data, steps=100_000).view("", ["node[0:1000].name"])[2].size > 1000


def test_all_entries_of_a_key_are_left_out() -> None:
    def entry(key: bytes, text: bytes) -> bytes:
        return field(1, field(1, key) + field(2, text))

    data = entry(b"a", b"1") + entry(b"b", b"2") + entry(b"a", b"3")
    proto = protoslice.open(data, "protoslice.Safetensors")
    assert proto.merge(omit=['metadata["a"]']).read() == entry(b"b", b"2")
    assert proto.merge(omit=['metadata["c"]']).read() == data


def test_elements_of_a_run_are_left_out() -> None:
    run = b"".join(b"\x08" + bytes([number]) for number in range(9))
    proto = protoslice.open(run + field(8, b"name"), "onnx.TensorProto")
    assert proto.merge(omit=["dims[2:5]", "dims[8]"]).read() == run[:4] + run[10:16] + field(8, b"name")
    with pytest.raises(Unsupported, match="packed"):
        protoslice.open(field(1, b"\x01\x02"), "onnx.TensorProto").merge(omit=["dims[0]"])
    with pytest.raises(InvalidInput, match="empty path"):
        proto.merge(omit=[""])
    with pytest.raises(InvalidInput, match="list of paths"):
        proto.merge(omit="dims")

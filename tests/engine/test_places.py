"""Every place that a path names, by number or condition, is at the position that the protobuf runtime gives.

Every printed path is accepted as a path parameter and leads to the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, Final

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.canonical import Canonical, delimited
from tests.support.protos import ROOT, Case, canonical, cases, places

import protoslice
from protoslice import schema
from protoslice.comparing.equality import Equality
from protoslice.comparing.parts import parts_that_differ
from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.facts import Node
from protoslice.library.proto import Proto, node_at
from protoslice.schema import from_descriptor_set
from protoslice.tensors.model import RootProto

_LONGEST_PATH = 4096


def opened(case: Case) -> protoslice.Proto:
    return protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)


@given(cases())
def test_the_whole_is_the_input_byte_for_byte(case: Case) -> None:
    proto = opened(case)
    assert (proto.size, proto.type, proto.rope.kind, proto.rope.type) == (len(case.data), ROOT, "message", ROOT)
    assert proto.rope.read() == case.data


@given(cases())
def test_every_place_holds_what_the_runtime_parses(case: Case) -> None:
    proto = opened(case)
    for place in places(case.message(), case.rng):
        if len(place.path) <= _LONGEST_PATH:
            got = proto.merge(place.path).read()
            assert place.agrees(got), f"{place.path}: {got[:100]!r}, not {place.value!r}"


@given(cases(), st.data())
def test_any_slice_of_any_rope_is_the_slice_of_its_bytes(case: Case, data: st.DataObject) -> None:
    proto = opened(case)
    paths = [place.path for place in places(case.message(), case.rng) if len(place.path) <= _LONGEST_PATH]
    rope = proto.merge(data.draw(st.sampled_from(["", *paths])))
    whole = rope.read()
    bound = st.integers(-len(whole) - 2, len(whole) + 2) | st.none()
    a, b = data.draw(bound), data.draw(bound)
    part = rope[a:b]
    assert part.read() == whole[a:b]
    c, d = data.draw(bound), data.draw(bound)
    assert part[c:d].read() == whole[a:b][c:d]
    assert b"".join(bytes(piece) for piece in part.pieces(7)) == whole[a:b] if len(part) < 10_000 else True


@given(cases())
def test_what_is_not_there_is_not_found(case: Case) -> None:
    proto, message = opened(case), case.message()
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        wrong = [f"{field.name}[0]", f'{field.name}["a"]']
        if field.has_presence and not message.HasField(field.name):
            wrong.append(field.name)
        for path in wrong:
            with pytest.raises(NotFound) as caught:
                proto.merge(path)
            assert caught.value.path == path
            assert field.name in caught.value.message


@given(cases())
def test_one_past_the_end_is_not_found_and_says_how_many_there_are(case: Case) -> None:
    proto, message = opened(case), case.message()
    for field in message.DESCRIPTOR.fields:
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        if not field.is_repeated or entry:
            continue
        count = len(getattr(message, field.name))
        path = f"{field.name}[{count}]"
        with pytest.raises(NotFound, match=f"it has {count} elements") as caught:
            proto.merge(path)
        assert caught.value.path == path
        with pytest.raises(NotFound):
            proto.merge(f"{field.name}[-1]")


@given(cases())
def test_a_name_that_is_unknown_is_not_found_and_the_known_ones_are_named(case: Case) -> None:
    with pytest.raises(NotFound, match="no field") as caught:
        opened(case).merge("no_such_field")
    assert caught.value.path == "no_such_field"
    assert case.root.DESCRIPTOR.fields[0].name in caught.value.message or len(case.root.DESCRIPTOR.fields) > 24


@given(cases())
def test_the_index_is_made_once_and_reopened(case: Case) -> None:
    types = from_descriptor_set(case.schema)
    proto = opened(case)
    again = protoslice.open(case.data, ROOT, types=types, index=proto.index_bytes)
    for place in places(case.message(), case.rng):
        if len(place.path) <= _LONGEST_PATH:
            assert again.merge(place.path).read() == proto.merge(place.path).read()


@given(cases(odd=False))
def test_a_plain_message_reads_back_from_its_own_paths(case: Case) -> None:
    """The message has no oddities: it is as the runtime would write it."""
    message = case.message()
    data = canonical(message)
    proto = protoslice.open(data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)
    for place in places(message, case.rng):
        if len(place.path) <= _LONGEST_PATH:
            assert place.agrees(proto.merge(place.path).read()), place.path


# Conditions in paths lead to the element that a search through the parsed message finds.

Meets = Callable[[Any], bool]

_TAGS = ["serve", "gpu", "train", ""]


def message(name: str) -> Any:
    return schema.bundled().message_class(f"tensorflow.{name}")()


def saved_model(random: Random, count: int) -> Any:
    model = message("SavedModel")
    for number in range(count):
        graph = model.meta_graphs.add()
        graph.meta_info_def.tags.extend(random.sample(_TAGS, random.randrange(len(_TAGS) + 1)))
        graph.meta_info_def.tensorflow_version = random.choice(["2.15", "2.16"])
        graph.graph_def.node.add(name=f"n{number}", op=random.choice(["Const", "Add"]), input=["a"] * number)
        graph.graph_def.node.add(name="shared").attr[random.choice("TU")].s = b"x" * random.choice([1, 30_000])
    return model


def _has_tag(tag: str, graph: Any) -> bool:
    return tag in graph.meta_info_def.tags


def _meets_both(one: Meets, other: Meets, graph: Any) -> bool:
    return one(graph) and other(graph)


def conditions(model: Any, random: Random) -> Iterator[tuple[str, Any]]:
    """Return conditions as text, each with the first meta graph that meets it; None if no graph does."""
    tags = random.sample(_TAGS, random.randrange(len(_TAGS) + 1))
    version, op, key = random.choice(["2.15", "2.16", ""]), random.choice(["Add", "Sub"]), random.choice("TV")
    info = "meta_info_def"
    quoted = ", ".join(f'"{tag}"' for tag in tags)
    asked: list[tuple[str, Meets]] = [
        *((f'{info}.tags="{tag}"', partial(_has_tag, tag)) for tag in (*_TAGS, "none")),
        (f"{info}.tags={{{quoted}}}", lambda graph: set(graph.meta_info_def.tags) == set(tags)),
        (f"1.4={{{quoted}}}", lambda graph: set(graph.meta_info_def.tags) == set(tags)),
        (f'{info}.tensorflow_version="{version}"', lambda graph: graph.meta_info_def.tensorflow_version == version),
        (f'graph_def.node.op="{op}"', lambda graph: op in [node.op for node in graph.graph_def.node]),
        (f'graph_def.node.attr.key="{key}"', lambda graph: any(key in node.attr for node in graph.graph_def.node)),
        ('graph_def.node.input={"a"}', lambda graph: any(node.input for node in graph.graph_def.node)),
        (f"{info}.stripped_op_list.op.name={{}}", lambda graph: True),
    ]
    for one, other in [random.sample(asked, 2) for _ in range(10)]:
        asked.append((f"{one[0]},{other[0]}", partial(_meets_both, one[1], other[1])))
    for text, meets in asked:
        yield text, next((graph for graph in model.meta_graphs if meets(graph)), None)


@pytest.mark.parametrize("floor", [1, 16384])
@pytest.mark.parametrize("seed", range(20))
def test_a_path_leads_to_the_first_element_that_meets_all(seed: int, floor: int) -> None:
    random = Random(seed)
    model = saved_model(random, random.randrange(5))
    proto = protoslice.open(model.SerializeToString(), "tensorflow.SavedModel", floor=floor)
    for text, due in conditions(model, random):
        path = f"meta_graphs[{text}]"
        if due is None:
            with pytest.raises(NotFound):
                proto.merge(path)
        else:
            assert type(due).FromString(proto.merge(path).read()) == due, path


@pytest.mark.parametrize("floor", [1, 16384])
def test_a_mask_keeps_the_element(floor: int) -> None:
    model = saved_model(Random(1), 4)
    model.meta_graphs[2].meta_info_def.tags[:] = ["serve", "tpu"]
    proto = protoslice.open(model.SerializeToString(), "tensorflow.SavedModel", floor=floor)
    kept = proto.merge("", fields=['meta_graphs[meta_info_def.tags={"tpu", "serve"}].graph_def.node[0].name'])
    due = message("SavedModel")
    due.meta_graphs.add().graph_def.node.add(name="n2")
    assert kept.read() == due.SerializeToString()


def test_without_types_a_condition_has_numbers() -> None:
    model = saved_model(Random(2), 4)
    model.meta_graphs[3].meta_info_def.tags[:] = ["one", "two"]
    proto = protoslice.open(model.SerializeToString(), "google.protobuf.ServiceOptions")
    assert proto.merge('2[1.4="two"]').read() == model.meta_graphs[3].SerializeToString()
    assert proto.merge('2[1.4={"two","one"}]').read() == model.meta_graphs[3].SerializeToString()


@pytest.mark.parametrize(
    ("condition", "error", "word"),
    [
        ('meta_info_def.missing="x"', NotFound, "has no field"),
        ('meta_info_def="x"', NotFound, "compares text, but meta_info_def is message"),
        ('meta_info_def.stripped_default_attrs="x"', NotFound, "stripped_default_attrs is bool"),
        ('meta_info_def.tags.name="x"', NotFound, "can only go through messages: tags is string"),
        ('meta_info_def.tags={"x"', InvalidInput, "closing brace"),
        (", ".join(['meta_info_def.tags="x"'] * 9), InvalidInput, "at most 8 conditions"),
    ],
)
def test_a_condition_that_cannot_be_met_says_why(condition: str, error: type[Exception], word: str) -> None:
    proto = protoslice.open(saved_model(Random(3), 2).SerializeToString(), "tensorflow.SavedModel")
    with pytest.raises(error, match=word):
        proto.merge(f"meta_graphs[{condition}]")


_KEYS: Final = ("STRING", "BOOL", "INT32", "INT64", "UINT64", "SINT32", "FIXED64")


def _map(number: int, key: str) -> str:
    entry = f"By{key.title()}Entry"
    return f"""
    field {{
      name: "by_{key.lower()}" number: {number} type: TYPE_MESSAGE type_name: ".x.M.{entry}" label: LABEL_REPEATED
    }}
    nested_type {{
      name: "{entry}" options {{ map_entry: true }}
      field {{ name: "key" number: 1 type: TYPE_{key} label: LABEL_OPTIONAL }}
      field {{ name: "value" number: 2 type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }}
    }}"""


_FILE: Final = f"""
name: "x.proto" package: "x"
message_type {{
  name: "M"
  field {{ name: "bytes" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }}
  field {{ name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }}
  field {{ name: "i32" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL }}
  field {{ name: "floats" number: 4 type: TYPE_FLOAT label: LABEL_REPEATED options {{ packed: true }} }}
  field {{ name: "sub" number: 5 type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }}
  field {{ name: "subs" number: 6 type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_REPEATED }}
  field {{ name: "texts" number: 7 type: TYPE_STRING label: LABEL_REPEATED }}
  field {{ name: "g" number: 8 type: TYPE_GROUP type_name: ".x.M.G" label: LABEL_OPTIONAL }}
  field {{ name: "h" number: 9 type: TYPE_GROUP type_name: ".x.M.H" label: LABEL_REPEATED }}
  {"".join(_map(number, key) for number, key in enumerate(_KEYS, 10))}
  nested_type {{ name: "G" field {{ name: "m" number: 1 type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }} }}
  nested_type {{ name: "H" field {{ name: "b" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }} }}
  extension {{ name: "inner" number: 100 extendee: ".x.M" type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }}
  extension_range {{ start: 100 end: 200 }}
}}
extension {{ name: "ext" number: 101 extendee: ".x.M" type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_OPTIONAL }}
extension {{ name: "exts" number: 102 extendee: ".x.M" type: TYPE_MESSAGE type_name: ".x.M" label: LABEL_REPEATED }}
extension {{ name: "true" number: 103 extendee: ".x.M" type: TYPE_BYTES label: LABEL_OPTIONAL }}
extension {{ name: "ints" number: 104 extendee: ".x.M" type: TYPE_INT64 label: LABEL_REPEATED }}
"""
RUN: Final = re.compile(r"(.*)\[[0-9]+:[0-9]+\]", re.DOTALL)
"""A pattern for the path of a chunk that holds a run of elements."""
NUMBERS: Final = ("floats", "[x.ints]")
REPEATED: Final = ("s", "s]", "h", *(f"by_{key.lower()}" for key in _KEYS), "40", "50")
"""The endings of paths of repeated fields."""
SET: Final = FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())])
TYPES: Final = from_descriptor_set(SET)


def opened_all(data: bytes, floor: int = 16) -> Proto:
    return protoslice.open(data, "x.M", types=TYPES, floor=floor)


def nodes(proto: Proto, path: str = "") -> Iterator[Node]:
    """Return every node that `tree` prints, at any depth."""
    for node in proto.tree(path):
        yield node
        if node.deeper:
            yield from nodes(proto, node.path)


def cells(proto: Proto, path: str = "") -> Iterator[tuple[Node, int]]:
    """Return every node of a treemap, and its size there."""
    for row in proto.document.heaviest(path, 1000, 0)[0]:
        node = node_at(path, row)
        yield node, node.size
        if node.deeper:
            yield from cells(proto, node.path)


def accepted(proto: Proto, path: str) -> bytes:
    """Return the bytes at `path`, which every parameter must accept: of merge, masks, tree and treemap."""
    proto.tree(path)
    proto.document.heaviest(path, 10, 0)
    masked = proto.merge(fields=[path]).read()
    assert len(masked) <= proto.size
    try:
        return proto.merge(path).read()
    except Unsupported:  # a repeated field, which only masks select as a whole
        assert path.endswith(tuple(REPEATED)), path
        return masked


def check(proto: Proto) -> int:
    """Check all printed paths; return their number."""
    printed = 0
    for node in [*nodes(proto), *(node for node, _ in cells(proto))]:
        data = accepted(proto, node.path)
        if node.count is None and (node.deeper or node.kind in ("bytes", "string")):
            assert len(data) == node.size, node.path
        printed += 1
    for large in proto.largest(1000):
        data = accepted(proto, large.path)
        head = 2 * 10  # small fields count with their tag and length
        assert large.count is not None or len(data) + head >= large.size, large.path
    for found in proto.document.find(["x.M"]):
        assert found.path == "" or proto.merge(found.path).kind == "message"
        accepted(proto, found.path) if found.path else None
    for least in (1, 30):
        split = proto.split(min_chunk=least, max_chunk=1 << 20)
        for chunk in split:
            run = RUN.fullmatch(chunk.path)
            if run is None and chunk.path:
                assert len(accepted(proto, chunk.path)) >= chunk.size, chunk.path
            elif run is not None and not run[1].endswith(NUMBERS):  # masks do not cut packed numbers
                assert proto.merge(fields=[chunk.path]).size > 0, chunk.path
    return printed


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 16, 1000]))
def test_every_printed_path_is_accepted_and_leads_to_its_bytes(seed: int, floor: int) -> None:
    data = Canonical(seed, distinct_keys=True).message(TYPES.descriptor("x.M"), 3)
    assert check(opened_all(data, floor)) or not data


def test_extensions_are_printed_by_their_full_names_in_brackets() -> None:
    leaf = delimited(1, b"y" * 20)
    data = delimited(100, leaf) + delimited(101, delimited(101, leaf)) + delimited(102, leaf) * 2 + delimited(103, b"z")
    proto = opened_all(data)
    assert [node.path for node in nodes(proto)] == [
        "[x.M.inner]",
        "[x.M.inner].bytes",
        "[x.ext]",
        "[x.ext].[x.ext]",
        "[x.ext].[x.ext].bytes",
        "[x.exts]",
        "[x.exts][0]",
        "[x.exts][0].bytes",
        "[x.exts][1]",
        "[x.exts][1].bytes",
        "[x.true]",
    ]
    check(proto)
    assert proto.merge("[x.ext].[x.ext].bytes").read() == b"y" * 20
    assert proto.merge("102[1]").read() == leaf
    with pytest.raises(NotFound, match=r"has no field \"\[x\.other\]\""):
        proto.merge("[x.other]")


def test_unknown_fields_are_printed_by_number_and_position() -> None:
    group = b"\x93\x03\x0a\x14" + bytes(20) + b"\x94\x03"  # field 50
    data = delimited(40, bytes(30)) * 2 + delimited(41, b"x") + group * 2
    proto = opened_all(data, floor=1)
    check(proto)
    assert {large.path for large in proto.largest()} >= {"40[0]", "40[1]", "41", "50[0].1", "50[1].1"}


@pytest.mark.parametrize("key", [True, -5, (1 << 63) + 7])
def test_keys_are_printed_as_they_are_asked_for(key: Any) -> None:
    message: Any = TYPES.message_class("x.M")()
    name = {bool: "by_bool", int: "by_int64" if key < 0 else "by_uint64"}[type(key)]
    getattr(message, name)[key].bytes = bytes(40)
    getattr(message, name)[type(key)()].bytes = bytes(50)
    proto = opened_all(message.SerializeToString(), floor=1)
    check(proto)
    shown = str(key).lower() if isinstance(key, bool) else str(key)
    assert proto.merge(f"{name}[{shown}].bytes").size == 40


def test_a_key_that_is_too_long_for_a_path_is_never_printed_as_another_key() -> None:
    message: Any = TYPES.message_class("x.M")()
    message.by_string["k" * 5000].bytes = bytes(60)
    proto = opened_all(message.SerializeToString(), floor=1)
    assert {large.path for large in proto.largest()} == {"by_string", "by_string[…].bytes"}


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_differences_are_named_by_paths_that_lead_there(one: int, other: int) -> None:
    types = TYPES.descriptor("x.M")
    before, after = (opened_all(Canonical(seed, distinct_keys=True).message(types, 3)) for seed in (one, other))
    equality = Equality(lambda here, there, size: [(0, size)], lambda _: None, local=True, stored=1 << 30)
    old, new = (RootProto(proto.document, proto.sources) for proto in (before, after))
    for found in parts_that_differ(old, new, equality, set()):
        if found is None:
            continue
        if found.change != "removed":
            accepted(after, found.path)
        if found.change != "added":
            accepted(before, found.was)

"""Every place that a path can name, by number or condition, is where the protobuf runtime says."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos import ROOT, Case, canonical, cases, places

import protoslice
from protoslice import schema
from protoslice.errors import InvalidInput, NotFound
from protoslice.schema import from_descriptor_set

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
    """Also without oddities: what the runtime itself would write."""
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
    """Conditions as text, and the first meta graph that meets each; None without one."""
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

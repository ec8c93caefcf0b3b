"""Conditions in paths lead to the element that a search through the parsed message finds."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

import protoslice
from protoslice import schema
from protoslice.errors import InvalidInput, NotFound

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

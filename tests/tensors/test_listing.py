"""Lists of tensors: they are built on access, and chosen by name, address and pattern."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tensors import tensor

from protoslice import _core, schema
from protoslice.concurrency import finish
from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.formats import messages as drafts
from protoslice.formats.registry import tensors_of
from protoslice.sources.files import BytesSource
from protoslice.tensors import model as formats
from protoslice.tensors.listing import HashIndex, Tensors, chosen_job, single, wanted
from protoslice.tensors.model import Model, RootProto, Tensor


class Counted(Tensors):
    """Tensors that count how often a key is requested."""

    asked = 0

    def key(self, number: int) -> tuple[str, str]:
        self.asked += 1
        return super().key(number)


def picked(found: Tensors, names: Sequence[str]) -> list[int]:
    """Return the chosen numbers, in order."""
    return [*finish(chosen_job(found, names))]


def matches(pattern: str, name: str) -> bool:
    """Return True if the pattern matches a tensor of that name."""
    try:
        return bool(picked(Tensors.of([tensor(b"\0", "U8", [1], name=name)]), [pattern]))
    except NotFound:
        return False


@given(st.text("ab*.", max_size=8).filter(lambda text: "*" in text), st.text("ab.", max_size=10))
def test_a_star_stands_for_anything(pattern: str, name: str) -> None:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert matches(pattern, name) is (re.fullmatch(expression, name) is not None)


def test_what_else_means_something_in_patterns_is_itself() -> None:
    assert matches("a[?]*", "a[?]b")
    assert not matches("a[?]*", "a?b")
    assert matches("*\n*", "a\nb")


def test_many_stars_cost_no_more_than_few() -> None:
    """A backtracking regular expression would try for longer than anyone can wait."""
    assert not matches("*" + "a*" * 40 + "b", "a" * 400)
    assert matches("*" + "a*" * 40 + "b", "a" * 400 + "b")


def test_types_that_there_are() -> None:
    of_bytes = wanted(None, "U8")
    assert of_bytes(tensor(b"\0", "U8", [1]))
    assert not of_bytes(tensor(b"\0", "I8", [1]))
    with pytest.raises(InvalidInput, match="Unknown dtype 'X8'"):
        wanted(None, "X8")


def test_which_of_many_are_chosen() -> None:
    found = Tensors.of([tensor(b"\0", "U8", [1], name=f"{kind}{number}") for kind in "ab" for number in range(4)])
    assert picked(found, ["b*", "a2", "path:a0", "*2"]) == [0, 2, 4, 5, 6, 7]
    for missing in (["a*", "c"], ["a1", "c*"]):
        with pytest.raises(NotFound, match="No tensor 'c"):
            picked(found, missing)


def test_errors_quote_names_in_part() -> None:
    name = "a\n\x1b" * 100_000
    found = Tensors.of([tensor(b"\0", "U8", [1], name=name)] * 2)
    errors = list[str]()
    for call in (
        lambda: single(found, "b" + name),
        lambda: single(found, name),
        lambda: picked(found, ["b" + name]),
        lambda: picked(found, [f"b{name}*"]),
    ):
        with pytest.raises((NotFound, Conflict)) as caught:
            call()
        errors.append(caught.value.message)
    for error in errors:
        assert len(error) < 3000
        assert error.isprintable()


def test_names_with_stars_are_bounded_and_others_are_not() -> None:
    found = Tensors.of([tensor(b"\0", "U8", [1], name=f"w{number}") for number in range(400)])
    assert len(picked(found, [f"w{number}" for number in range(400)])) == 400
    assert len(picked(found, [f"w{number}*" for number in range(64)])) == 400
    with pytest.raises(InvalidInput, match="At most 64"):
        picked(found, [f"w{number}*" for number in range(65)])


def test_each_name_is_told_once_and_looked_at_in_slices() -> None:
    made = [tensor(b"\0", "U8", [1], name=f"w{number}") for number in range(3000)]
    found = Counted(len(made), made.__getitem__)
    asked = [found.asked for _ in chosen_job(found, [f"*{number}*" for number in range(64)])]
    assert found.asked == 3000
    assert max(after - before for before, after in pairwise([*asked, 3000])) <= 1024


# Lazy tensors: a short file that declares many costs little time and memory, until one is read.

MANY = 20_000


def onnx(model: Any) -> Iterator[Any]:
    return (model.graph.initializer.add() for _ in range(MANY))


def caffe(model: Any) -> Iterator[Any]:
    layer = model.layer.add()
    return (layer.blobs.add() for _ in range(MANY))


def coreml(model: Any) -> Iterator[Any]:
    layers = (model.neuralNetwork.layers.add() for _ in range(MANY))
    return (layer.loadConstant.data.floatValue.append(1) for layer in layers)


def hlo(model: Any) -> Iterator[Any]:
    model.shape.element_type = 13
    return (model.tuple_literals.add() for _ in range(MANY))


def cntk(model: Any) -> Iterator[Any]:
    values = model.data["k"].vector_value.value
    return (values.add().nd_array_view_value.SetInParent() for _ in range(MANY))


def tensorflow(model: Any) -> Iterator[Any]:
    tensors = model.node.add().attr["value"].list.tensor
    return (tensors.add() for _ in range(MANY))


def paddle(model: Any) -> Iterator[Any]:
    variables = model.blocks.add().vars
    return (variables.add(name=f"v{number:06}", persistable=True).type.SetInParent() for number in range(MANY))


FILLED: dict[str, Callable[[Any], Iterator[Any]]] = {
    "onnx.ModelProto": onnx,
    "caffe.NetParameter": caffe,
    "CoreML.Specification.Model": coreml,
    "xla.LiteralProto": hlo,
    "CNTK.proto.Dictionary": cntk,
    "tensorflow.GraphDef": tensorflow,
    "paddle.framework.proto.ProgramDesc": paddle,
}


def model_of(type_: str) -> Model:
    """Return a model of this many tensors, whose root is of this type."""
    message = schema.bundled().message_class(type_)()
    for _ in FILLED[type_](message):
        pass
    source = BytesSource(message.SerializePartialToString())
    flat = schema.bundled().flat(type_)
    rope = _core.Rope([(0, 0, source.size)])
    index = _core.Index(_core.index_source([source], rope, flat, type_))
    return Model("root", type_, {"root": source}, RootProto(_core.Document(index, flat, [source]), [source]))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses of all tensors that are built."""
    addresses: list[str] = []
    finished = drafts.TensorBuilder._finished

    def counted(self: Any, data: formats.Data) -> Tensor:
        addresses.append(self.path)
        return finished(self, data)

    monkeypatch.setattr(drafts.TensorBuilder, "_finished", counted)
    return addresses


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("type_", FILLED)
def test_no_object_is_kept_of_a_tensor(type_: str, made: list[str]) -> None:
    model = model_of(type_)
    before = objects()
    found = tensors_of(model)
    assert len(found) == MANY
    page = range(MANY // 2, MANY // 2 + 3)
    assert [(each.name, each.address) for each in map(found.__getitem__, page)] == [*map(found.key, page)]
    assert len(made) <= 3, "tensors that nobody asked for were made"
    last = found[MANY - 1]
    assert (list(found.numbers(last.address)), list(found.numbers("no such"))) == ([MANY - 1], [])
    assert MANY - 1 in found.numbers(last.name)
    assert len(made) <= 5
    # A program's declarations are kept in the order of names.
    limit = 3 * MANY + 2000 if type_.startswith("paddle") else 2000
    assert objects() - before < limit, objects() - before


def test_lookups_are_those_of_a_list() -> None:
    random = Random(5)
    names = [random.choice(["a", "b", "path:c", "", "é", str(number)]) for number in range(300)]
    tensors = [
        replace(tensor(b"", "U8", [0], name=name), address=f"path:{name}{at % 290}") for at, name in enumerate(names)
    ]
    lazy = Tensors(len(tensors), tensors.__getitem__)
    joined = Tensors.joined([Tensors.of(tensors[:100]), Tensors.of(()), Tensors.of(tensors[100:])])
    for key in {*names, *(each.address for each in tensors), "no", "path:"}:
        addressed = [number for number, each in enumerate(tensors) if each.address == key]
        expected = addressed[-1:] or [number for number, each in enumerate(tensors) if each.name == key]
        assert list(lazy.numbers(key)) == list(joined.numbers(key)) == expected, key
    assert list(joined) == tensors
    assert list(lazy) == tensors
    with pytest.raises(IndexError):
        lazy[len(tensors)]
    with pytest.raises(IndexError):
        lazy[-1]


def test_an_index_of_equal_keys_and_of_none() -> None:
    assert HashIndex((), 0).find("x") == []
    index = HashIndex(("x" for _ in range(1000)), 1000)
    assert (index.find("x"), index.find("y")) == (list(range(1000)), [])

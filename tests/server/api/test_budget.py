"""Budget of computed elements: larger answers are refused, and repeated elements are not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from tests.support.serve import Asked, ask, open_app
from tests.support.views import every_answer

from protoslice import _core, schema
from protoslice.errors import ProtosliceError
from protoslice.formats.tensorflow import TYPES
from protoslice.server.app import Application
from protoslice.sources.ropes import Rope
from protoslice.tensors import layout as budget
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.layout import selected
from protoslice.tensors.model import Encoding, Filled, Stored, Tensor
from protoslice.tensors.reading import read
from protoslice.tensors.slices import parsed_slice

MANY: Final = 1 << 40
SECONDS: Final = 60
"""Far more than any of these requests takes, and far less than the elements would."""


def constant(value: Mapping[str, Any], dtype: int = 1, dims: tuple[int, ...] = (MANY,), more: bytes = b"") -> bytes:
    """A GraphDef of one constant; its TensorProto has the fields `value`."""
    graph: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    node = graph.node.add(name="c", op="Const")
    tensor = node.attr["value"].tensor
    tensor.dtype = dtype
    for length in dims:
        tensor.tensor_shape.dim.add(size=length)
    for name, given in value.items():
        if isinstance(given, bytes):
            setattr(tensor, name, given)
        else:
            getattr(tensor, name).extend(given)
    return bytes(graph.SerializeToString()) + more


async def answers(targets: list[str], *models: bytes, headers: Mapping[str, str] | None = None) -> list[Asked]:
    """Answers about a store of the first model; `BEFORE` in a target is the id of one of the last."""
    found: list[Asked] = []
    async with open_app() as app:
        ids = [await _store(app, model) for model in models]
        for target in targets:
            asked = ask(app, "GET", f"/v1/stores/{ids[0]}/{target.replace('BEFORE', ids[-1])}", headers=headers)
            found.append(await asyncio.wait_for(asked, SECONDS))
    return found


async def _store(app: Application, model: bytes) -> str:
    made = await ask(app, "PUT", "/v1/stores?filename=g.pb&type=tensorflow.GraphDef", model)
    return str(json.loads(made.body)["id"])


async def test_statistics_of_a_constant_are_those_of_all_its_elements() -> None:
    few, many = ({"float_val": [1.0, *range(3, 3 + each)]} for each in (1, 1000))
    whole, part, sampled = await answers(
        ["tensors/c/stats?sample=0", "tensors/c/stats?slice=::1000", f"tensors/c/stats?sample={MANY}"], constant(few)
    )
    found = json.loads(whole.body)
    assert (found["looked_at"], found["min"], found["max"], found["zeros"]) == (MANY, 1.0, 3.0, 0)
    assert found["mean"] == pytest.approx(3.0)
    assert sum(found["histogram"]["counts"]) == MANY
    assert json.loads(part.body)["looked_at"] == -(-MANY // 1000)
    assert json.loads(sampled.body)["looked_at"] == MANY
    (bounded,) = await answers(["tensors/c/stats?sample=999"], constant(many))
    assert json.loads(bounded.body)["looked_at"] < 1000


async def test_models_of_constants_are_compared_by_their_first_elements() -> None:
    ours, theirs = constant({"float_val": [1.0, 3.0]}), constant({"float_val": [1.0, 2.0]})
    diff, delta = await answers(["diff?before=BEFORE", "diff/c?before=BEFORE&sample=0"], ours, theirs)
    assert [item["what"] for item in json.loads(diff.body)["items"]][:2] == ["file", "tensor"]
    found = json.loads(delta.body)
    assert (found["looked_at"], found["changed"], found["max"]) == (MANY, MANY - 1, 1.0)
    same = constant({"float_val": [1.0, 3.0, 3.0]})
    (unchanged,) = await answers(["diff?before=BEFORE"], ours, same)
    assert "tensor" not in {item["what"] for item in json.loads(unchanged.body)["items"]}


@pytest.mark.parametrize(
    "target", ["tensors/c", "tensors/c?format=npy", "tensors/c?slice=1:", "tensors/c?slice=::2", "safetensors"]
)
async def test_more_elements_than_the_budget_are_refused(target: str) -> None:
    (refused,) = await answers([target], constant({"float_val": [1.0]}))
    assert refused.status == 413
    assert "64" not in refused.text or "slice" in json.loads(refused.body)["detail"]
    (part,) = await answers([target], constant({"float_val": [1.0]}), headers={"range": "bytes=4096-8191"})
    assert (part.status, len(part.body)) == (206, 4096)
    (several,) = await answers(
        [target],
        constant({"float_val": [1.0]}),
        headers={"range": f"bytes=0-{1 << 29},{1 << 32}-{(1 << 32) + (1 << 30)}"},
    )
    assert several.status == 413


def test_a_budget_grows_with_the_stored_bytes() -> None:
    budget.check_budget(budget.LEAST, 0, "")
    budget.check_budget(64 << 30, 1 << 30, "")
    with pytest.raises(budget.OverBudget, match="ask for less"):
        budget.check_budget((64 << 30) + 1, 1 << 30, "ask for less")


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(constant({"float_val": [1.5]}), id="float"),
        pytest.param(constant({"int_val": [7]}, dtype=3), id="varint"),
        pytest.param(constant({"int_val": [1]}, dtype=29), id="narrow"),
        pytest.param(constant({"bool_val": [True]}, dtype=10), id="bool"),
        pytest.param(constant({}), id="zeros"),
        pytest.param(constant({"dcomplex_val": [1.0, 2.0]}, dtype=18, dims=(1 << 20, 1 << 20)), id="complex"),
    ],
)
async def test_no_route_works_on_a_vast_constant(model: bytes) -> None:
    async with open_app() as app:
        ids = [await _store(app, each) for each in (model, model + b"\xfa\xff\xff\xff\x0f\x00")]
        found = await asyncio.wait_for(every_answer(app, *ids), SECONDS)
    assert [(target, answer.status) for target, answer in found if answer.status >= 500] == []
    assert all(len(answer.body) <= budget.LEAST for _, answer in found)


async def test_an_unbounded_computation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_app() as app:
        store = await _store(app, constant({"float_val": [1.0]}))
        target = f"/v1/stores/{store}/tensors/c"
        assert (await ask(app, "HEAD", target)).status == 413
        monkeypatch.setattr(budget, "LEAST", 1 << 62)
        assert (await ask(app, "HEAD", target)).status == 200


CUTS: Final = ["0:7", "1:", "::2", "::3,1:", "1,::2", ":,2:4", "2:3,::5", "...,1", "3::2,1::3", "0,0", "-1", ":,-1:"]


@pytest.mark.parametrize("text", CUTS)
@pytest.mark.parametrize("first", [0, 1, 2, 9, 17, 35, 36])
def test_slices_of_repeated_elements_are_those_of_all_of_them(text: str, first: int) -> None:
    dtype, shape = DTYPES["U16"], (4, 9)
    stored = b"".join((number + 1).to_bytes(2, "little") for number in range(first))
    every = stored + (stored[-2:] or b"\0\0") * (36 - first)
    cut = parsed_slice(text, shape)
    data = Filled(Stored(Rope.joined([stored])))
    whole = selected(Stored(Rope.joined([every])), dtype, shape, cut)
    found = selected(data, dtype, shape, cut)
    content = found.read()
    assert content == whole.read()
    assert content == found.read(0, found.size)
    distinct = budget.distinct_bytes(found)
    assert content[distinct:] == content[-2:] * ((len(content) - distinct) // 2)


COMPUTED: Final = [(number, dtype, encoding) for number, dtype in TYPES.items() if dtype.bits for encoding in Encoding]


@pytest.mark.parametrize(("number", "dtype", "encoding"), COMPUTED, ids=lambda each: str(getattr(each, "name", each)))
def test_every_way_to_compute_elements_tells_what_it_is_made_of(number: int, dtype: Any, encoding: Encoding) -> None:
    stored = Stored(Rope.joined([bytes([1]) * dtype.width]), encoding)
    tensor = Tensor(f"t{number}", "path:t", dtype, (1 << 36,), "const", None, Filled(stored))
    try:
        data = read(tensor, compare=False).bytes
    except ProtosliceError:
        return  # a form in which nothing can repeat
    assert data.size == dtype.width << 36
    assert budget.stored_bytes(data) == dtype.width
    assert budget.distinct_bytes(data) <= max(dtype.width, 8) * dtype.width
    assert all(isinstance(source, _core.Computed) for source in data.sources)

"""Many parts in one response, and merges by a JSON body: each part equals the content at its URL.

The budget of computed elements: larger answers are refused, and repeated elements are not read.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from email import message_from_bytes
from typing import Any, Final

import httpx
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.support.serve import Asked, ask, assert_problem, open_app
from tests.support.views import every_answer

from protoslice import _core, schema
from protoslice.client import Client
from protoslice.client.parts import PartReader
from protoslice.concurrency import executor
from protoslice.errors import IntegrityError, NotFound, ProtosliceError
from protoslice.formats.tensorflow import TYPES
from protoslice.server.app import Application
from protoslice.sources.ropes import Rope
from protoslice.tensors import layout as budget
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.layout import selected
from protoslice.tensors.model import Encoding, Filled, Stored, Tensor
from protoslice.tensors.reading import read
from protoslice.tensors.slices import parsed_slice

JSON = "application/json"


@pytest.fixture(scope="module")
def base(client: httpx.Client) -> str:
    weights = [numpy_helper.from_array(np.arange(n + 3, dtype="f4"), f"w {n}") for n in range(200)]
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [], weights))
    answer = client.post("/v1/stores?filename=m.onnx", content=model.SerializeToString())
    return f"/v1/stores/{answer.json()['id']}"


def asked(client: httpx.Client, base: str, *parts: dict[str, str]) -> list[Any]:
    """Return the parts as a mail parser reads them."""
    answer = client.post(f"{base}/parts", json={"parts": parts})
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    head = f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode()
    mail = message_from_bytes(head + answer.content)
    assert mail.is_multipart()
    return list(mail.get_payload())


VIEWS = (
    "chunks/0",
    "tensors/w%203?slice=1:3",
    "tensors/w%203?format=npy",
    "merge?path=graph.node[0]",
    "merge?path=graph.name",
    "files/m.onnx",
    "onnx/model.onnx",
    "safetensors?name=w%20*",
    "metadata",
)


def test_each_part_is_what_its_url_gives(client: httpx.Client, base: str) -> None:
    found = asked(client, base, *({"view": view} for view in VIEWS))
    for view, part in zip(VIEWS, found, strict=True):
        alone = client.get(f"{base}/{view}")
        assert part.get_payload(decode=True) == alone.content, view
        assert part["content-location"] == f"{base}/{view}"
        for name in ("content-type", "content-length", "etag", "repr-digest", "x-tensor-shape", "x-protobuf-message"):
            assert part[name] == alone.headers.get(name), (view, name)


def test_a_part_may_be_a_range(client: httpx.Client, base: str) -> None:
    whole = client.get(f"{base}/files/m.onnx").content
    first, last = asked(
        client, base, {"view": "files/m.onnx", "range": "bytes=5-9"}, {"view": "files/m.onnx", "range": "bytes=-3"}
    )
    assert first.get_payload(decode=True) == whole[5:10]
    assert (first["content-range"], first["content-length"]) == (f"bytes 5-9/{len(whole)}", "5")
    assert last.get_payload(decode=True) == whole[-3:]


@pytest.mark.parametrize(
    ("part", "status", "slug"),
    [
        ({"view": "tensors/nothing"}, 404, "not-found"),
        ({"view": "nothing"}, 404, "not-found"),
        ({"view": "tree"}, 404, "not-found"),
        ({"view": "tensors/w%203?slice=x"}, 400, "invalid-input"),
        ({"view": "files/m.onnx", "range": "bytes=99999999-"}, 416, "range-not-satisfiable"),
        ({"view": "files/m.onnx", "range": "bytes=0-1,70000-70001"}, 400, "invalid-input"),
        ({"view": "files/m.onnx", "range": "lines=0-1"}, 400, "invalid-input"),
        ({"view": "files/m.onnx\r\nx: y"}, 400, "invalid-input"),
        ({"view": "files/m.onnx", "more": "1"}, 400, "invalid-input"),
    ],
)
def test_nothing_is_sent_if_a_part_is_wrong(
    client: httpx.Client, base: str, part: dict[str, str], status: int, slug: str
) -> None:
    answer = client.post(f"{base}/parts", json={"parts": [{"view": "chunks/0"}, part]})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=status, slug=slug)


def test_numbers_of_parts_are_bounded(client: httpx.Client, base: str) -> None:
    assert len(asked(client, base, *([{"view": "merge?path=graph.name"}] * 1000))) == 1000
    for count in (0, 1001):
        answer = client.post(f"{base}/parts", json={"parts": [{"view": "chunks/0"}] * count})
        assert answer.status_code == 400


class Seconds:
    """The processor time of a service with a model of a hundred tensors, where each piece of work takes a second."""

    def __init__(self, app: Application, store: str, patch: pytest.MonkeyPatch) -> None:
        self._app, self._store, self._patch = app, store, patch
        self._passed = itertools.count()

    async def ask(self, views: list[str]) -> tuple[Asked, int]:
        """Send a request; return the answer, and the seconds that it took."""
        body, typed = json.dumps({"parts": [{"view": view} for view in views]}).encode(), {"content-type": JSON}
        before = next(self._passed)
        with self._patch.context() as patch:
            patch.setattr(executor, "thread_time", lambda: float(next(self._passed)))
            answer = await ask(self._app, "POST", f"/v1/stores/{self._store}/parts", body, typed)
        return answer, next(self._passed) - before

    async def assert_refused(self, views: list[str]) -> int:
        refused, spent = await self.ask(views)
        assert_problem(refused.status, refused.headers, refused.body, expected=413, slug="limit-exceeded")
        assert "seconds of processor time: ask for fewer" in refused.text
        return spent


@pytest.fixture
async def seconds(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Seconds]:
    weights = [numpy_helper.from_array(np.zeros(1, "f2"), f"w{n}") for n in range(100)]
    model = helper.make_model(helper.make_graph([], "g", [], [], weights)).SerializeToString()
    async with open_app() as app:
        store = json.loads((await ask(app, "PUT", "/v1/stores?filename=m.onnx", model)).body)["id"]
        yield Seconds(app, store, monkeypatch)


async def test_work_of_all_parts_is_bounded(seconds: Seconds) -> None:
    views = [f"onnx/model.onnx?outputs=w{n}" for n in range(100)]
    assert await seconds.assert_refused(views) < 100, "work went on behind the bound"
    assert (await seconds.ask(views[90:]))[0].status == 200


async def test_bytes_computed_while_they_are_sent_count(seconds: Seconds) -> None:
    stored, computed = ([f"tensors/w{n}{more}" for n in range(20)] for more in ("", "?dequantize=true"))
    for views in (stored, computed):
        await seconds.ask(views)  # shared by all tensors
    answer, spent = await seconds.ask(stored)
    assert answer.status == 200
    assert await seconds.assert_refused(computed) > spent, "nothing was computed"


def test_a_merge_by_a_body_is_that_of_the_url(client: httpx.Client, base: str) -> None:
    for body, query in (
        ({}, ""),
        ({"path": "graph", "fields": ["name", "node[0]"]}, "?path=graph&fields=name&fields=node[0]"),
        ({"omit": ["graph.node", "graph.initializer[1:]"]}, "?omit=graph.node&omit=graph.initializer[1:]"),
        ({"omit_larger_than": "20"}, "?omit_larger_than=20"),
        ({"omit_larger_than": 20}, "?omit_larger_than=20"),
    ):
        for accept in ("*/*", "application/json", "text/plain"):
            ours = client.post(f"{base}/merge", json=body, headers={"accept": accept})
            theirs = client.get(f"{base}/merge{query}", headers={"accept": accept})
            assert (ours.status_code, ours.content) == (200, theirs.content), (body, accept)
            assert ours.headers["content-type"] == theirs.headers["content-type"]
            assert ours.headers["cache-control"] == "no-store"
            assert "content-location" not in ours.headers


def test_a_merge_by_a_body_takes_more_fields_than_a_url(client: httpx.Client, base: str) -> None:
    fields = [f"initializer[{number}].name" for number in range(200)] * 100
    assert len(json.dumps(fields)) > 400_000
    answer = client.post(f"{base}/merge", json={"path": "graph", "fields": fields})
    found = onnx.GraphProto.FromString(answer.content)
    assert [each.name for each in found.initializer] == [f"w {number}" for number in range(200)]
    assert not any(each.raw_data for each in found.initializer)


def test_what_is_left_out_by_path_is_cleared(client: httpx.Client, base: str) -> None:
    whole = onnx.GraphProto.FromString(client.get(f"{base}/merge?path=graph").content)
    body = {"path": "graph", "omit": ["initializer[*].raw_data", "initializer[3:]", "node"]}
    found = onnx.GraphProto.FromString(client.post(f"{base}/merge", json=body).content)
    assert [each.name for each in found.initializer] == [each.name for each in whole.initializer[:3]]
    assert not any(each.HasField("raw_data") for each in found.initializer)
    assert not found.node


@pytest.mark.parametrize(
    ("ref", "body", "status", "slug"),
    [
        ("mlflow-artifacts%3A%2Ffolder", {}, 404, "not-found"),  # names with slashes
        ("ann%2Fmodel@main", {}, 404, "not-found"),
        ("", {"path": "graph.nothing"}, 404, "not-found"),
        ("", {"path": "graph", "omit": ["name.more"]}, 404, "not-found"),
        ("", {"path": "graph.name", "omit": ["x"]}, 422, "unsupported"),
        ("", {"other": 1}, 400, "invalid-input"),
    ],
)
def test_a_merge_by_a_body_says_what_is_wrong(
    client: httpx.Client, base: str, ref: str, body: dict[str, object], status: int, slug: str
) -> None:
    answer = client.post(f"{f'/v1/stores/{ref}' if ref else base}/merge", json=body)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=status, slug=slug)


def test_the_client_reads_parts(client: httpx.Client, base: str) -> None:
    with Client(str(client.base_url)) as ours:
        ref = base.rpartition("/")[2]
        found = {}
        for number, part in enumerate(ours.parts(ref, VIEWS)):
            if number != 2:  # skipped bytes are not read
                found[part.view] = part.read()
        assert found == {view: client.get(f"{base}/{view}").content for view in VIEWS if view != VIEWS[2]}
        with pytest.raises(NotFound):
            list(ours.parts(ref, ["chunks/0", "chunks/99"]))


HEAD = b"--b\r\ncontent-length: 3\r\nrepr-digest: sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:\r\n\r\nabc"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (HEAD, "ended before its last part"),
        (HEAD[:-1], "ended within a part"),
        (HEAD.replace(b"abc", b"abd") + b"\r\n--b--\r\n", "does not match its digest"),
        (HEAD.replace(b"content-length", b"length"), "without a length"),
        (HEAD + b"\r\n--b\r\nx: y", "more parts"),
        (b"--b--\r\n.", "fewer parts"),
        (b"--b\r\n" + b"x" * (1 << 18), "malformed headers"),
    ],
)
def test_the_client_refuses_damaged_streams(body: bytes, words: str) -> None:
    pieces = iter([body[at : at + 7] for at in range(0, len(body), 7)])
    with pytest.raises(IntegrityError, match=words):
        [part.read() for part in PartReader("multipart/mixed; boundary=b", pieces).parts(["a"])]


def test_the_client_wants_a_multipart_stream() -> None:
    with pytest.raises(IntegrityError, match="instead of multipart/mixed"):
        PartReader("text/html", iter([b""]))


MANY: Final = 1 << 40
SECONDS: Final = 60
"""Far more seconds than any of these requests takes, and far fewer than the elements would take."""


def constant(value: Mapping[str, Any], dtype: int = 1, dims: tuple[int, ...] = (MANY,), more: bytes = b"") -> bytes:
    """Return a GraphDef of one constant; its TensorProto has the fields `value`."""
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
    """Return the answers for a store of the first model; `BEFORE` in a target is a store of the last model."""
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

"""The second request for a view is cheap: results of the first are stored, and lengths outlive the process."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tests.support.serve import Asked, ask, open_app
from tests.support.views import ROUTES, targets

import protoslice
from protoslice import schema
from protoslice.server.api.views import PREFIX, VIEWS
from protoslice.server.app import Application, create_app
from protoslice.server.rendering import Renderer
from protoslice.server.settings import Settings

_PACKAGE = str(Path(protoslice.__file__).parent)


class Steps:
    """The calls of Python's and C's functions from the package's code, in all threads that begin during the count."""

    def __init__(self) -> None:
        self._counter = count()
        self._seen = 0
        self._ours = dict[CodeType, bool]()

    def taken(self) -> int:
        """Return the steps since the last call."""
        now = next(self._counter)
        before, self._seen = self._seen, now + 1
        return now - before

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        # This runs for each call and each return of the process, so every operation here counts.
        if event == "call" or event == "c_call":
            code = frame.f_code
            ours = self._ours.get(code)
            if ours is None:
                ours = self._ours[code] = code.co_filename.startswith(_PACKAGE)
            if ours:
                next(self._counter)


@contextmanager
def counted_steps() -> Iterator[Steps]:
    """Count the steps of a service that is opened within the context."""
    steps = Steps()
    threading.setprofile(steps._profile)
    sys.setprofile(steps._profile)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


TENSORS: Final = 1000
"""The number of tensors, nodes and records; a request with fewer steps visits none of them all."""
HEAD: Final = {"range": "bytes=0-7"}
ONNX: Final = {"file": ["m.onnx"], "name": ["layer.3.w"], "field": ["graph.node[3]"], "node": ["layer.3.add"]}
"""The parameter values for the model; see `targets`."""
WITH: Final = {
    f"{PREFIX}/graph/between": ["start=layer.3.add&end=layer.9.add"],
    f"{PREFIX}/onnx/{{file}}": ["outputs=v9"],
    f"{PREFIX}/safetensors/{{shard}}": ["shards=4KiB"],
}
"""More queries of routes that need them, or that have costly ones."""
FITTING: Final = {
    "fields": ["node[3]&path=graph"],
    "file": ["m.onnx"],
    "inputs": ["v3"],
    "key": ["value&value=000007&type=google.protobuf.StringValue"],
    "name": ["layer.*"],
    "framing": ["delimited"],
    "omit": ["node[3]&path=graph"],
    "outputs": ["v9"],
    "path": ["graph"],
    "slice": ["0:4"],
    "tags": ["serve"],
    "type": ["onnx.NodeProto"],
    "value": ["000007&key=value&type=google.protobuf.StringValue"],
}
"""The parameter values of views whose example in OpenAPI fits no store here."""
OF_RECORDS: Final = FITTING | {
    "fields": ["value&type=google.protobuf.StringValue"],
    "file": ["words"],
    "omit_larger_than": ["4&type=google.protobuf.StringValue"],
    "path": ["value&type=google.protobuf.StringValue"],
    "type": ["google.protobuf.StringValue"],
}


def model(first: int, tensors: int = TENSORS) -> bytes:
    """Return an ONNX model of a chain of nodes, each with a tensor."""
    weights = [numpy_helper.from_array(np.full(8, first + n, "f4"), f"layer.{n}.w") for n in range(tensors)]
    nodes = [
        helper.make_node("Add", [f"v{n}", f"layer.{n}.w"], [f"v{n + 1}"], name=f"layer.{n}.add") for n in range(tensors)
    ]
    ends = [helper.make_tensor_value_info(name, 1, [8]) for name in ("v0", f"v{tensors}")]
    return bytes(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)).SerializeToString())


def saved_model() -> bytes:
    """Return a SavedModel with a constant in each node of its only meta graph."""
    made: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    graph = made.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    for number in range(TENSORS):
        tensor = graph.graph_def.node.add(name=f"layer.{number}.w", op="Const").attr["value"].tensor
        tensor.dtype, tensor.tensor_content = 1, bytes(32)
        tensor.tensor_shape.dim.add(size=8)
    return bytes(made.SerializeToString())


STREAM: Final = b"".join(b"\x08\x0a\x06%06d" % number for number in range(TENSORS))


async def put(app: Application, body: bytes, name: str) -> str:
    return str(json.loads((await ask(app, "PUT", f"/v1/stores?filename={name}", body)).body)["id"])


def all_targets(ids: Mapping[str, str], routes: tuple[str, ...] = ROUTES) -> Iterator[str]:
    """Return the targets of routes that read a store: record routes with the stream, others with the model."""
    for route in routes:
        of = "stream" if "/records" in route else "after"
        found = [*targets(route, ONNX, ids["before"])]
        found += [f"{each}?{query}" for query in WITH.get(route, ()) for each in found if "?" not in each]
        for target in found:
            query = ("&" if "?" in target else "?") + "framing=delimited" if of == "stream" else ""
            yield target.replace(PREFIX, f"/v1/stores/{ids[of]}") + query


def parameter_targets(ids: Mapping[str, str]) -> dict[tuple[str, str], list[str]]:
    """Return the targets of every view with each value of each declared parameter, by view and parameter."""
    found = dict[tuple[str, str], list[str]]()
    document = create_app(Settings(storage="memory://")).openapi()
    for view in VIEWS:
        of_records = "/records" in view.path
        fits = OF_RECORDS if of_records else FITTING
        for each in document["paths"][view.path_format]["get"]["parameters"]:
            if each["in"] != "query":
                continue
            name, kind = each["name"], each["schema"]
            (given,) = kind["examples"]
            examples = given if isinstance(given, list) else [str(given).lower() if given is True else given]
            values = fits.get(name) or kind.get("enum") or examples
            if of_records and name != "framing":
                values = [f"{value}&framing=delimited" for value in values]
            for of in (ids["stream"],) if of_records else (ids["after"], ids["tagged"]):
                bases = [base for base in targets(view.path, ONNX, ids["before"]) if "?" not in base]
                queries = [f"{name}={value}" for value in values]
                found.setdefault((view.path, name), []).extend(
                    base.replace(PREFIX, f"/v1/stores/{of}") + f"?{query}" for base in bases for query in queries
                )
    return found


async def filled(app: Application, tensors: int = TENSORS) -> dict[str, str]:
    return {
        "before": await put(app, model(1, tensors), "m.onnx"),
        "after": await put(app, model(2, tensors), "m.onnx"),
        "stream": await put(app, STREAM, "words"),
        "tagged": await put(app, saved_model(), "saved_model.pb"),
    }


@pytest.fixture
def steps() -> Iterator[Steps]:
    with counted_steps() as counted:
        yield counted


async def test_the_second_request_of_every_view_is_cheap(steps: Steps) -> None:
    dear, found = list[str](), list[str]()
    async with open_app() as app:

        async def cost(method: str, target: str, headers: Mapping[str, str]) -> tuple[Asked, int]:
            steps.taken()
            return await ask(app, method, target, headers=headers), steps.taken()

        for target in all_targets(await filled(app)):
            made, first = await cost("GET", target, HEAD)
            if made.status >= 400:
                continue
            again, second = await cost("GET", target, HEAD)
            unchanged, third = await cost("GET", target, {"if-none-match": made.headers["etag"]})
            length, fourth = await cost("HEAD", target, {})
            assert (again.body, unchanged.status, length.status) == (made.body, 304, 200), target
            if first > 10 * TENSORS:
                dear.append(target)
            if second > max(first / 10, TENSORS) or third > TENSORS or fourth > max(first / 10, TENSORS):
                found.append(f"{target}: {first}, then {second}, {third} for a 304, {fourth} for a HEAD")
    assert len(dear) > 20, "the model is too small to prove anything"
    assert found == []


async def test_the_second_request_with_every_parameter_of_every_view_is_cheap(steps: Steps) -> None:
    dear, found, refused = 0, list[str](), list[str]()
    async with open_app() as app:
        for which, asked in parameter_targets(await filled(app)).items():
            given = 0
            for target in asked:
                steps.taken()
                made = await ask(app, "GET", target)
                first = steps.taken()
                if made.status >= 400:
                    continue
                given += 1
                again = await ask(app, "GET", target)
                second = steps.taken()
                assert again.body == made.body, target
                dear += first > 10 * TENSORS
                if second > max(first / 10, TENSORS):
                    found.append(f"{target}: {first}, then {second}")
            if not given:
                refused.append(f"{which}: {asked}")
    assert not refused, "FITTING needs values of " + "\n".join(refused)
    assert dear > 20, "the model is too small to prove anything"
    assert found == []


async def test_a_comparison_is_kept_by_both_ids(steps: Steps) -> None:
    """The result does not depend on the names in the request."""
    found, dear = list[str](), set[str]()
    async with open_app() as app:
        stores = {await put(app, model(n), f"m.onnx&tag={name}"): name for n, name in ((1, "m:1"), (2, "m:2"))}
        before, after = stores
        for route in ROUTES:
            for target in targets(route, ONNX, before):
                by_id = target.replace(PREFIX, f"/v1/stores/{after}")
                by_tag = by_id.replace(before, stores[before]).replace(after, stores[after])
                if before not in by_id:
                    continue
                steps.taken()
                assert (await ask(app, "GET", by_id)).status == 200, by_id
                first = steps.taken()
                again = await ask(app, "GET", by_tag)
                second = steps.taken()
                assert again.status == 200, by_tag
                dear |= {route} if first > 10 * TENSORS else set()
                if second > max(first / 10, TENSORS):
                    found.append(f"{by_tag}: {first}, then {second}")
    assert {f"{PREFIX}/diff", f"{PREFIX}/moves"} <= dear
    assert found == []


@pytest.mark.parametrize("name", ["nosuch", "model-00000-of-00002.safetensors", "model-00003-of-00002.safetensors"])
async def test_a_shard_of_an_impossible_name_is_not_looked_for(steps: Steps, name: str) -> None:
    async with open_app() as app:
        target = f"/v1/stores/{await put(app, model(1), 'm.onnx')}/safetensors/{name}"
        await ask(app, "GET", target)  # opens the store
        steps.taken()
        for query in ("shards=4KiB", "shards=8KiB", "name=layer.1*", "dtype=F16"):
            answer = await ask(app, "GET", f"{target}?{query}")
            assert (answer.status, b"model.safetensors" in answer.body) == (404, True)
            assert steps.taken() < TENSORS, query


async def test_a_process_that_made_no_view_answers_304_and_head_without_making_it(tmp_path: Path, steps: Steps) -> None:
    routes, found, dear = tuple(view.path for view in VIEWS), list[str](), 0
    heads = dict[str, Asked]()
    where = {"storage": f"file://{tmp_path}/storage"}
    async with open_app(**where) as app:
        ids = await filled(app)
        for target in all_targets(ids, routes):
            steps.taken()
            answer = await ask(app, "HEAD", target)
            dear += steps.taken() > 10 * TENSORS
            if answer.status == 200:
                heads[target] = answer
    async with open_app(**where) as app:
        # Facts that all tensors, or all records, share.
        await ask(app, "GET", f"/v1/stores/{ids['after']}/tensors/layer.5.w?format=json")
        await ask(app, "GET", f"/v1/stores/{ids['stream']}/records?framing=delimited&summary=true")
        for target, before in heads.items():
            steps.taken()
            unchanged = await ask(app, "GET", target, headers={"if-none-match": before.headers["etag"]})
            third = steps.taken()
            again = await ask(app, "HEAD", target)
            fourth = steps.taken()
            same = {name: again.headers.get(name) for name in before.headers if name != "x-request-id"}
            assert unchanged.status == 304, target
            assert same == {name: text for name, text in before.headers.items() if name != "x-request-id"}, target
            if max(third, fourth) > TENSORS:
                found.append(f"{target}: {third} for a 304, {fourth} for a HEAD")
    assert dear >= 5, "the model is too small to prove anything"
    assert found == []


async def test_a_rendered_message_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered, render = list[str](), Renderer.render

    async def counted(self: Renderer, data: bytes, **how: Any) -> bytes:
        rendered.append(how["form"])
        return await render(self, data, **how)

    monkeypatch.setattr(Renderer, "render", counted)
    async with open_app() as app:
        store = await put(app, model(1), "m.onnx")
        target, headers = f"/v1/stores/{store}/merge?path=graph.node[1]", {"accept": "application/json"}
        length = await ask(app, "HEAD", target, headers=headers)
        whole = [await ask(app, method, target, headers=headers) for method in ("GET", "HEAD", "GET")]
        assert length.headers["content-length"] == str(len(whole[0].body))
        assert {each.headers["content-length"] for each in whole} == {length.headers["content-length"]}
        unchanged = await ask(app, "GET", target, headers={**headers, "if-none-match": length.headers["etag"]})
        assert unchanged.status == 304
    assert len(rendered) == 1


async def test_what_is_kept_of_heads_is_bounded(tmp_path: Path) -> None:
    """A client that requests other parameters each time fills one row, and no more."""
    async with open_app(storage=f"file://{tmp_path}/storage") as app:
        store = await put(app, model(1), "m.onnx")
        for number in range(400):
            await ask(app, "HEAD", f"/v1/stores/{store}/safetensors?name=layer.{number}.w")
        assert app.services.opened is not None
        sql = "SELECT name, length(data), object FROM derived WHERE name LIKE 'heads%'"
        rows = await app.services.opened.database.read(lambda tx: tx.all(sql))
        ((_, size, object_),) = rows
        assert 20_000 < size < 40_000
        assert object_ is None


@pytest.mark.parametrize("target", ["onnx/model.onnx", "onnx/single.onnx", "onnx/weights.bin?outputs=y"])
async def test_a_model_of_empty_graphs_costs_less_than_a_step_for_each(target: str, steps: Steps) -> None:
    count = 200_000
    async with open_app() as app:
        store = await put(app, b"\x08\x0a" + b"\x3a\x00" * count, "m.onnx&type=onnx.ModelProto")
        steps.taken()
        refused = await ask(app, "GET", f"/v1/stores/{store}/{target}")
        assert steps.taken() < count / 10
    assert (refused.status, json.loads(refused.body)["type"]) == (413, "/problems/limit-exceeded")
    assert f"{count + 1} fields" in refused.text


async def test_parts_of_a_graph_are_made_out_of_one_parsed_graph(steps: Steps) -> None:
    async with open_app() as app:
        store = await put(app, model(1), "m.onnx")
        costs = list[int]()
        for number in (5, 6, 7):
            steps.taken()
            answer = await ask(app, "GET", f"/v1/stores/{store}/onnx/model.onnx?inputs=v{number}&outputs=v{number + 1}")
            assert answer.status == 200
            costs.append(steps.taken())
        for name in ("nothing", "none"):
            steps.taken()
            assert (await ask(app, "GET", f"/v1/stores/{store}/onnx/model.onnx?outputs={name}")).status == 404
            costs.append(steps.taken())
    assert max(costs[1:]) < costs[0] / 4

"""Strings that are not UTF-8, in every type of message: no route that reads a store fails on them."""

from __future__ import annotations

import json
from itertools import groupby
from urllib.parse import quote

import pytest
from google.protobuf.message import Message
from tests.server.bodies.ways import tar_of
from tests.support.golden import MODELS, folder
from tests.support.odd_strings import odd_message, root_types, with_odd_strings
from tests.support.protos.writer import varint
from tests.support.serve import Asked, ask, open_app
from tests.support.stores import field
from tests.support.views import every_answer

from protoslice import schema
from protoslice.detection import detect
from protoslice.server.app import Application

PACKAGES = {name: list(types) for name, types in groupby(root_types(), lambda name: name.rpartition(".")[0])}
CASES = sorted(path.parent.name for path in MODELS.glob("*/expected.json"))
TAR = {"content-type": "application/x-tar"}
UNKNOWN = varint(536870911 << 3) + b"\x00"
"""A field that no type declares: the same message with and without it differs nowhere else."""


async def _failures(app: Application, files: dict[str, bytes], type_name: str, root: str) -> list[str]:
    """Requests that failed, of the upload of a model and of all that read its store."""
    query = f"/v1/stores?report=true&type={type_name}&root={quote(root)}"
    made = await ask(app, "PUT", query, tar_of(files), TAR)
    if made.status >= 300:
        return [f"PUT {type_name}: {made.status} {made.text}"]
    store = str(json.loads(made.body)["id"])
    # A comparison looks into both sides only where they differ.
    other = await ask(app, "PUT", query, tar_of({**files, root: files[root] + UNKNOWN}), TAR)
    answers = await every_answer(app, store, str(json.loads(other.body)["id"]))
    assert any(answer.status == 200 for _, answer in answers)
    return [f"{type_name}: {target}: {answer.status}" for target, answer in answers if _is_faulty(answer)]


def _is_faulty(answer: Asked) -> bool:
    """True for a failure, for JSON that is none, and for text that shows Python's form of bytes."""
    if answer.status >= 500 or b"b'\\xff" in answer.body or b"b'\\\\xff" in answer.body:
        return True
    kind = answer.headers.get("content-type", "")
    try:
        for text in answer.body.splitlines() if "jsonl" in kind else [answer.body] if "json" in kind else ():
            json.loads(text.decode("utf-8"))
    except ValueError:
        return True
    return False


async def _reading(*models: tuple[dict[str, bytes], str, str]) -> list[str]:
    """Failures of all requests that read each of the models: files, type and root."""
    wrong: list[str] = []
    async with open_app() as app:
        for model in models:
            wrong.extend(await _failures(app, *model))
    return wrong


@pytest.mark.parametrize("package", PACKAGES)
async def test_routes_read_messages_of_every_type(package: str) -> None:
    assert await _reading(*(({"m.pb": odd_message(name)}, name, "m.pb") for name in PACKAGES[package])) == []


def _golden(case: str) -> tuple[dict[str, bytes], str, str] | None:
    """A model of the corpus with odd strings in its root: files, type, root; None for other roots."""
    root = str(json.loads((MODELS / case / "expected.json").read_text())["root"])
    files = {str(path.relative_to(folder(case))): path for path in folder(case).rglob("*") if path.is_file()}
    contents = {name: path.read_bytes() for name, path in files.items()}
    type_name = detect(contents[root], root, len(contents[root])).type_name
    if (
        type_name is None
        or root.endswith(("txt", ".cpb"))
        or case.startswith(("corrupt", "gguf", "safetensors", "paddle_pir_json"))
    ):
        return None
    return {**contents, root: with_odd_strings(contents[root], type_name)}, type_name, root


@pytest.mark.parametrize("case", [case for case in CASES if _golden(case) is not None])
async def test_routes_read_models_of_other_programs(case: str) -> None:
    model = _golden(case)
    assert model is not None
    assert await _reading(model) == []


async def test_routes_read_weights_with_odd_names() -> None:
    def text(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data

    key = text(b"general.\xff") + (8).to_bytes(4, "little") + text(b"odd \xff")
    tensor = text(b"w\xff") + b"\1\0\0\0" + (2).to_bytes(8, "little") + bytes(12)
    head = b"GGUF\3\0\0\0" + (1).to_bytes(8, "little") * 2 + key + tensor
    gguf = head + bytes(-len(head) % 32 + 8)
    header = json.dumps({"w\x00\x7f": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    async with open_app() as app:
        for name, data in (("m.gguf", gguf), ("m.safetensors", text(header) + bytes(8))):
            made = await ask(app, "PUT", f"/v1/stores?filename={name}", data)
            store = str(json.loads(made.body)["id"])
            answers = await every_answer(app, store, store)
            assert [f"{target}: {answer.status}" for target, answer in answers if _is_faulty(answer)] == []
            assert any("/tensors/" in target and answer.status == 200 for target, answer in answers)


async def test_a_parser_that_leaves_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "parsed", lambda kind, data: kind.FromString(data))
    assert any(
        ": 500" in each
        for each in await _reading(({"m.pb": odd_message("onnx.ModelProto")}, "onnx.ModelProto", "m.pb"))
    )


async def test_tensors_are_found_by_names_with_odd_bytes() -> None:
    tensor = b"\x08\x01\x10\x01" + field(8, b"w\xff") + field(9, b"\0\0\x80\x3f")
    told: list[Asked] = []
    async with open_app() as app:
        made = await ask(app, "PUT", "/v1/stores?filename=m.onnx&type=onnx.ModelProto", field(7, field(5, tensor)))
        base = f"/v1/stores/{json.loads(made.body)['id']}"
        name = quote(json.loads((await ask(app, "GET", f"{base}/tensors")).body)["items"][0]["name"], safe="")
        for target in (f"tensors/{name}", f"tensors?name={name}", f"safetensors?name={name}", "references.json"):
            told.append(await ask(app, "GET", f"{base}/{target}"))
    one, listed, file, references = told
    assert one.body == b"\0\0\x80\x3f"
    assert [each["name"] for each in json.loads(listed.body)["items"]] == ["w\\xff"]
    assert "w\\xff" in json.loads(file.body[8 : 8 + int.from_bytes(file.body[:8], "little")])
    assert json.loads(references.body)["refs"]["w%5Cxff/0"]


async def test_nodes_are_found_by_names_with_odd_bytes() -> None:
    nodes = b"".join(field(1, field(1, b"x\xff") + field(2, b"y") + field(3, name)) for name in (b"n\xff", b"n"))
    told: list[Asked] = []
    async with open_app() as app:
        made = await ask(app, "PUT", "/v1/stores?filename=m.onnx&type=onnx.ModelProto", field(7, nodes))
        base = f"/v1/stores/{json.loads(made.body)['id']}/graph"
        for query in ("around=n%5Cxff&hops=0", "around=x%5Cxff&hops=0", "search=n%5CxFF"):
            told.append(await ask(app, "GET", f"{base}?{query}"))
    for answer in told:
        assert [node["name"] for node in json.loads(answer.body)["nodes"]] == ["n\\xff"]


def test_odd_strings_are_the_same_text_in_messages_as_in_names() -> None:
    tensor: Message = schema.parsed(
        schema.bundled().message_class("onnx.NodeProto"), field(1, b"\xff") + field(3, b"n\xff")
    )
    assert str(tensor) == 'input: "\\\\xff"\nname: "n\\\\xff"\n'

"""Silent omission: each view of tensors gives all of them, or names those that it leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import numpy as np
import onnx
import pytest
from tests.server.bodies.ways import tar_of

from protoslice.server.api.views import PREFIX
from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.tensors.omitted import Omitted
from protoslice.tensors.references import References

GOOD, WORDS, GONE = "tensor-good", "tensor-of-words", "tensor-gone"
LACKS = {"safetensors", "references.json"}
"""Views that cannot hold every tensor."""


def _model() -> bytes:
    """An ONNX model of a good tensor, one of strings, and one whose file is missing."""
    good = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), GOOD)
    words = onnx.helper.make_tensor(WORDS, onnx.TensorProto.STRING, [1], [b"x"])  # type: ignore[list-item]  # strings are bytes
    gone = onnx.TensorProto(name=GONE, data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    gone.external_data.add(key="location", value="missing.bin")
    graph = onnx.helper.make_graph([], "g", [], [], initializer=[good, words, gone])
    return onnx.helper.make_model(graph).SerializeToString()


@pytest.fixture(scope="module")
def base(client: httpx.Client) -> str:
    archive = tar_of({"model.onnx": _model()})
    answer = client.post("/v1/stores", content=archive, headers={"content-type": "application/x-tar"})
    assert answer.status_code == 201, answer.text
    return f"/v1/stores/{answer.json()['id']}"


def _views() -> Iterator[str]:
    """Every GET below a store without more parameters in its path, from the application."""
    rows = (row.split(" ") for row in create_app(Settings(storage="memory://")).rules)
    for path in {path for method, path in rows if method == "GET"}:
        rest = path.removeprefix(f"{PREFIX}/")
        if rest != path and "{" not in rest:
            yield rest


def _check(client: httpx.Client, base: str, view: str) -> bool:
    """Assert that a view names what it lacks; True if it lacks anything."""
    answer = client.get(f"{base}/{view}")
    if answer.status_code != 200:
        return False
    body = answer.content
    if view == "safetensors":  # the metadata names them too, for programs that read no headers
        head = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
        head.pop("__metadata__")
        body = json.dumps(head).encode()
    lacking = {name for name in (GOOD, WORDS, GONE) if name.encode() not in body}
    if GOOD in lacking or not lacking:  # no view of tensors, or one of all
        return False
    omitted = Omitted.parse(answer.headers.get("protoslice-omitted"))
    assert omitted is not None, f"{view} lacks {lacking} without a word"
    assert set(omitted.names) == lacking
    assert omitted.count == len(lacking)
    return True


VIEWED = sorted(_views())


@pytest.mark.parametrize("view", VIEWED)
def test_view_names_what_it_leaves_out(client: httpx.Client, base: str, view: str) -> None:
    assert _check(client, base, view) == (view in LACKS)


def test_view_that_leaves_out_silently_is_found(
    client: httpx.Client, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(References, "omitted", None)
    with pytest.raises(AssertionError, match="without a word"):
        _check(client, base, "references.json?strict=false")  # which was not made before


@pytest.mark.parametrize("view", sorted(LACKS))
def test_strict_refuses_and_names(client: httpx.Client, base: str, view: str) -> None:
    assert view in VIEWED
    refused = client.get(f"{base}/{view}?strict=true")
    assert refused.status_code == 422
    assert WORDS in refused.json()["detail"]
    assert GONE in refused.json()["detail"]
    assert client.get(f"{base}/{view}?strict=false").status_code == 200
    assert client.get(f"{base}/{view}?strict=perhaps").status_code in {400, 422}


def test_strict_lets_whole_answers_pass(client: httpx.Client, base: str) -> None:
    answer = client.get(f"{base}/safetensors?strict=true&name={GOOD}")
    assert answer.status_code == 200
    assert "protoslice-omitted" not in answer.headers
    part = client.get(f"{base}/safetensors", headers={"range": "bytes=0-7"})
    assert part.status_code == 206
    assert "protoslice-omitted" in part.headers

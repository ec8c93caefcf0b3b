"""The page about the HTTP API is true: every call, every fixed limit, and promises about all requests.

The page about deployment is true: metrics and manifests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.serve import serve
from tests.support.stores import field, onnx
from tests.support.views import FILE, PLAIN, STREAM

from protoslice.defaults import MAX_FILES
from protoslice.recipes import MEDIA_TYPE, Copy, RecipeWriter
from protoslice.schema.parsing import MAX_TEXT
from protoslice.server.http.planner import MAX_HEADER, MAX_RANGES
from protoslice.server.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/http-api.md").read_text()
LIMITS = (ROOT / "docs/reference/limits.md").read_text()
DOCUMENT = json.loads((ROOT / "openapi/openapi.json").read_text())
VERBS = {"GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"}
PAGES = {("GET", "/v1/stores/{ref}/files/")}
MODEL = onnx(1000, 2000)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """Return a client of a service over memory that allows few ranges; its model has the tag `m`."""
    with (
        serve(storage="memory://", max_ranges=2, space_watermark_bytes=0) as live,
        httpx.Client(base_url=live.url, timeout=60) as client,
    ):
        assert client.put("/v1/stores?filename=m.onnx&tag=m", content=MODEL).status_code == 201
        yield client


def _named() -> set[tuple[str, str]]:
    """Return each call that the page's table names, except HEAD."""
    found: set[tuple[str, str]] = set()
    for row in re.findall(r"^\| (`.+?) \|", PAGE.split("\n## Calls\n")[1].split("\n## ")[0], re.MULTILINE):
        for group in row.split(" · "):
            *verbs, path = group.replace("`", "").split()
            found |= {(verb, path) for verb in verbs if verb in VERBS}
    return found


def test_every_promised_call_is_named() -> None:
    offered = {
        (verb.upper(), path): "x-stability" not in of
        for path, found in DOCUMENT["paths"].items()
        for verb, of in found.items()
        if verb.upper() in VERBS
    }
    promised = {call for call, is_promised in offered.items() if is_promised}
    assert promised <= _named(), "each promised call needs a row under Calls in docs/reference/http-api.md"
    assert _named() - PAGES <= set(offered)


def _called_by_examples() -> dict[str, set[str]]:
    """Return the operations that the programs of `examples/` call, by language."""
    python, go, typescript = (
        (ROOT / "examples" / name).read_text() for name in ("python/example.py", "go/main.go", "typescript/example.ts")
    )
    imported = re.findall(r"^from protoslice_client\.api\.\w+ import (.+)$", python, re.MULTILINE)
    methods = re.findall(r"\bclient\.([A-Z]\w+?)(?:WithBody)?\(", go)
    constants = dict(re.findall(r'const (\w+) = ("[^"]+") as const', typescript))
    requests = re.findall(r'\bclient\.([A-Z]+)\((\w+|"[^"]+")', typescript)
    return {
        "python": {name for line in imported for name in line.split(", ")},
        "go": {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in methods},
        "typescript": {f"{verb} {constants.get(path, path)}" for verb, path in requests},
    }


@pytest.mark.parametrize("language", ["python", "go", "typescript"])
def test_examples_call_operations_of_the_document(language: str) -> None:
    operations = [(verb, path, of) for path, found in DOCUMENT["paths"].items() for verb, of in found.items()]
    offered = {of["operationId"] for _, _, of in operations} | {
        f'{verb.upper()} "{path}"' for verb, path, _ in operations
    }
    called = _called_by_examples()[language]
    assert len(called) > 7
    assert called <= offered, "`make clients` compiles these programs over generated clients"


def _limits() -> dict[str, str]:
    """Return the fixed limits, as the page states them."""
    return dict(re.findall(r"^\| (.+?) \| (\d.+?) \|$", LIMITS.split("\n## ")[0], re.MULTILINE))


def _most(what: str) -> int:
    return int(_limits()[what].split()[0])


def test_limits_that_the_code_names() -> None:
    assert _most("files of one store") == MAX_FILES
    assert _limits()["a `Range` header"] == f"{MAX_HEADER} characters, {MAX_RANGES} ranges"
    assert _limits()["a model in text format"] == f"{MAX_TEXT >> 20} MiB"
    asked = DOCUMENT["components"]["schemas"]["AskMissing"]["properties"]["chunks"]
    assert _most("pieces that `missing` is asked for at once") == asked["maxItems"]


@pytest.mark.parametrize(
    ("what", "url"),
    [
        ("the path of a file", "/v1/stores?filename={}"),
        ("the name of a tag or schema", "/v1/stores?filename=m.onnx&tag={}"),
    ],
)
def test_names_have_a_limit(client: httpx.Client, what: str, url: str) -> None:
    longest = "x" * _most(what)
    assert client.put(url.format(longest), content=MODEL).status_code in {200, 201}
    assert client.put(url.format(longest + "x"), content=MODEL).status_code == 400


def test_paths_and_queries_have_a_limit(client: httpx.Client) -> None:
    longest = "graph.".ljust(_most("a field path"), "x")
    assert client.get("/v1/stores/m/merge", params={"path": longest}).status_code == 404
    assert client.get("/v1/stores/m/merge", params={"path": longest + "x"}).status_code in {400, 413}
    most = _most("levels that `/tree` shows at once")
    assert client.get(f"/v1/stores/m/tree?depth={most}").status_code == 200
    assert client.get(f"/v1/stores/m/tree?depth={most + 1}").status_code == 400
    most = _most("parameters of one query")
    assert client.get("/v1/stores/m/merge?" + "&".join(["fields=graph"] * most)).status_code == 200
    assert client.get("/v1/stores/m/merge?" + "&".join(["fields=graph"] * (most + 1))).status_code == 400


def test_messages_within_messages_have_a_limit(client: httpx.Client) -> None:
    def nested(levels: int) -> bytes:
        """Return a `FileDescriptorSet` of messages nested `levels` deep, with a long file name."""
        data = field(1, b"x" * 100_000)
        for _ in range(levels - 2):
            data = field(3, data)
        return field(1, field(4, data))

    most = _most("messages within messages")
    for levels, expected in ((most, 201), (most + 1, 413)):
        answer = client.put("/v1/stores?type=google.protobuf.FileDescriptorSet", content=nested(levels))
        assert answer.status_code == expected, answer.text


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("x" * 8, True),
        ("aZ09._:+/=-" * 5, True),
        ("x" * 64, True),
        ("x" * 7, False),
        ("x" * 65, False),
        ("has a space", False),
        ('quote"quote', False),
    ],
)
def test_a_request_is_called_what_its_client_calls_it(client: httpx.Client, given: str, taken: bool) -> None:
    for path in ("/livez", "/v1/stores/m/merge", "/v1/stores/m", "/v1/nothing"):
        answer = client.get(path, headers={"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) is taken, path
        assert answer.status_code == 200 or answer.json()["request_id"] == answer.headers["x-request-id"]


def test_more_ranges_than_allowed_are_ignored(client: httpx.Client) -> None:
    answers = [
        client.get("/v1/stores/m/merge", headers={"range": "bytes=0-0,200-200" + more}) for more in ("", ",400-400")
    ]
    assert [answer.status_code for answer in answers] == [206, 200]
    assert answers[1].content == MODEL


def test_twelve_digits_of_an_id_are_enough_and_eleven_are_not(client: httpx.Client) -> None:
    store = client.get("/v1/stores/m").json()["id"]
    assert client.get(f"/v1/stores/{store[:12]}").json()["id"] == store
    assert client.get(f"/v1/stores/{store[:11]}").status_code == 404


def test_a_copy_is_of_a_store_by_its_whole_id(client: httpx.Client) -> None:
    store = client.get("/v1/stores/m").json()["id"]
    for ref, expected in ((store, 200), (store[:12], 400), ("m", 400)):
        recipe = RecipeWriter()
        lines = [recipe.file("m.onnx"), recipe.copy(Copy(ref, "m.onnx", 0, len(MODEL)))]
        lines += [recipe.end(len(MODEL), sha256(MODEL).hexdigest()), recipe.done()]
        answer = client.post("/v1/stores", content=b"".join(lines), headers={"content-type": MEDIA_TYPE})
        assert answer.status_code == expected, answer.text


def test_pieces_are_looked_for_in_any_store_of_eight_mebibytes_that_was_asked_for_its(client: httpx.Client) -> None:
    pieces = [Random(seed).randbytes(250_000) for seed in range(40)]
    asked = [{"sha256": sha256(piece).hexdigest(), "size": len(piece)} for piece in pieces]
    for held in (pieces[:36], pieces[36:]):
        sent = client.post("/v1/stores", files=[("file", (f"{n}.bin", piece)) for n, piece in enumerate(held)])
        assert client.get(f"/v1/stores/{sent.json()['id']}/pieces").status_code == 200
    for seed in range(20):
        client.put("/v1/stores?filename=m.onnx", content=onnx(100, seed=200 + seed)).raise_for_status()
    answer = client.post("/v1/chunks/missing", json={"chunks": asked}).json()
    assert answer["missing"] == [each["sha256"] for each in asked[36:]], "they lie in a store of one mebibyte"
    assert len(answer["found"]) == 36


def test_entity_tags_of_lists_that_change_are_weak_and_all_others_strong(client: httpx.Client) -> None:
    lists = ["/v1/stores", "/v1/tags", "/v1/schemas"]
    assert {client.get(path).headers["etag"][:3] for path in lists} == {'W/"'}
    files = [("file", item) for item in {FILE: MODEL, **STREAM}.items()]
    assert client.post("/v1/stores?min_chunk=500&tag=several", files=files).status_code == 201
    answers = ["pieces", "chunks", "tree", "treemap", "summary", "tensors", *(case.path for case in PLAIN)]
    for path in ["", *(f"/{each}" for each in answers)]:
        assert client.get(f"/v1/stores/several{path}").headers["etag"].startswith('"'), path


MONITORING = (ROOT / "docs/how-to/operate/monitoring.md").read_text()


def test_every_metric_is_explained() -> None:
    metrics = Metrics()
    metrics.resumable.labels("begun").inc()
    families = text_string_to_metric_families(metrics.render().decode())
    there = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    there = {name for name in there if not name.endswith("_created")}
    assert {name for table in _tables_of_metrics() for name in table} == there
    assert len(there) >= 12


def test_what_all_workers_share_is_in_a_table_of_its_own() -> None:
    _, once = _tables_of_metrics()
    families = text_string_to_metric_families(generate_latest(Metrics().shared).decode())
    assert once == {family.name for family in families}


def _tables_of_metrics() -> list[set[str]]:
    """Return the names of each worker's metrics, and of the metrics that exist once."""
    section = MONITORING.split("\n## ")[0]
    tables = section.split("| metric | meaning |")[1:]
    return [
        {
            name
            for row in table.splitlines()
            if row.startswith("| `")
            for name in re.findall(r"`(\w+)`", row.split("|")[1])
        }
        for table in tables
    ]

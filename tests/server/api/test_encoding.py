"""Facts over the wire: their JSON is what OpenAPI promises, and the client reads the same fact."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from protoslice import facts
from protoslice.client.http.json_facts import read_json
from protoslice.facts import (
    ChunkEntry,
    Damage,
    Difference,
    DtypeTotal,
    File,
    GraphEdge,
    GraphEntry,
    GraphNode,
    ModelReport,
    Neighbourhood,
    Node,
    Piece,
    PiecePlace,
    Removed,
    RepositorySummary,
    RepositoryVersion,
    Restored,
    Schema,
    Signature,
    SignatureTensor,
    Store,
    StoreName,
    Tag,
    TensorDelta,
)
from protoslice.server.api import encoding, models

ID, SHA = "9f" * 32, "5e" * 32
TIME = datetime(2026, 11, 21, 10, 0, 5, tzinfo=UTC)
STORE = Store(
    ID, "onnx.ModelProto", "a.onnx", 7, 2, 1 << 20, 1 << 30, TIME, ("a:1", "b"), (File("a.onnx", 7, SHA),),
    "upload", SHA, 1, names=(StoreName("tag", "a:1"), StoreName("hub", "ann/m@main")),
)  # fmt: skip
ROOTLESS = Store(ID, None, None, 1, 0, 1, 2, TIME, (), (File("x", 1, None),), "register", None, None, "no file is one")
LEAF = Node("graph.name", 2, "name", "string", None, None, 5, False, "torch")
GRAPH = Node("graph", 7, "graph", "message", "onnx.GraphProto", None, 9, True, None, (LEAF,), 3)
REPORT = ModelReport(
    type="onnx.ModelProto", tensors=3, missing=("w.bin",), duplicates=("a",), damaged=(Damage("b", "not so"),),
    dtypes=(DtypeTotal("F32", 2, 9, 36), DtypeTotal(None, 1, 0, 0)),
    complete=False,
)  # fmt: skip
EMPTY = Node("graph", 7, "graph", "message", "onnx.GraphProto", None, 0, True, None, (), 0)

CASES: list[tuple[object, Callable[[Any], dict[str, Any]], type[BaseModel]]] = [
    (STORE, encoding.store_json, models.StoreModel),
    (ROOTLESS, encoding.store_json, models.StoreModel),
    (Removed(ID, ("a:1",), TIME), encoding.removed_json, models.RemovedModel),
    (Tag("a:1", ID, TIME), encoding.tag_json, models.TagModel),
    (
        RepositorySummary("ann/m", "hub", "ann/m@main", ID, "onnx.ModelProto", 1 << 40, 2, TIME),
        encoding.repository_json,
        models.RepositoryModel,
    ),
    (
        RepositorySummary("ann/empty", "oci", None, None, None, None, None, TIME),
        encoding.repository_json,
        models.RepositoryModel,
    ),
    (RepositoryVersion("v1", "tag", "ann/m@v1", ID, TIME), encoding.version_json, models.RepositoryVersionModel),
    (Schema("mine", 90, 3, TIME), encoding.schema_json, models.SchemaModel),
    (
        Signature("serve", "predict", ("serve",), (SignatureTensor("x", "x:0", "F32", (None, 3)),), ()),
        encoding.signature_json,
        models.SignatureModel,
    ),
    (
        Neighbourhood(
            (GraphEntry("graph", "g", 2),),
            7,
            "graph",
            "graph.node[1]",
            (GraphNode("a", "Add", "graph.node[1]", 0, (("axis", "i: 1"),), ("w",), 3),),
            (GraphEdge("graph.node[0]", "graph.node[1]", "x", 1),),
            True,
        ),
        asdict,
        models.NeighbourhoodModel,
    ),
    (ChunkEntry(0, "message", "onnx.ModelProto", "", 7, SHA), encoding.chunk_json, models.ChunkModel),
    (ChunkEntry(1, "bytes", None, "graph.initializer[0].raw_data", 7, None), encoding.chunk_json, models.ChunkModel),
    (REPORT, encoding.report_json, models.ReportModel),
    (ModelReport(type=None, tensors=None), encoding.report_json, models.ReportModel),
    (Piece("a.onnx", 1 << 40, 7, SHA), encoding.piece_json, models.PieceModel),
    (PiecePlace(SHA, 7, ID, "a.onnx", 1 << 40), encoding.place_json, models.PlaceModel),
    (LEAF, encoding.node_json, models.NodeModel),
    (GRAPH, encoding.node_json, models.NodeModel),
    (EMPTY, encoding.node_json, models.NodeModel),
    (Difference("tensor", "w", "renamed", 8, 8, "was v", "path:w[1]", "path:w[0]"), asdict, models.DifferenceModel),
    (Difference("file", "a.onnx", "added", None, 7), asdict, models.DifferenceModel),
    (TensorDelta("F32", (2, 3), 6, 6, 1, 0, 0.5, 0.25, None), asdict, models.TensorDeltaModel),
]
NAMES = [f"{type(fact).__name__}-{number}" for number, (fact, _, _) in enumerate(CASES)]


@pytest.mark.parametrize(("fact", "encode", "model"), CASES, ids=NAMES)
def test_a_fact_comes_through_the_wire(
    fact: object, encode: Callable[[Any], dict[str, Any]], model: type[BaseModel]
) -> None:
    sent = json.loads(json.dumps(encode(fact)))
    model.model_validate(sent)
    assert read_json(type(fact), sent) == fact


@pytest.mark.parametrize(("fact", "encode", "model"), CASES, ids=NAMES)
def test_openapi_lists_every_member(
    fact: object, encode: Callable[[Any], dict[str, Any]], model: type[BaseModel]
) -> None:
    promised = {field.alias or name for name, field in model.model_fields.items()}
    assert set(encode(fact)) | {"children", "more"} & promised == promised


def test_every_fact_has_a_case() -> None:
    elsewhere = {
        "AccessToken",
        "Damage",
        "File",
        "RecordsSummary",
        "Restored",
        "SignatureTensor",
        "StoreName",
        "TensorEntry",
    }
    elsewhere |= {
        "DtypeTotal",
        "EventLetter",
        "GraphEdge",
        "GraphEntry",
        "GraphNode",
        "Histogram",
        "SignInTerms",
        "SignedUrl",
        "Space",
        "TensorGroup",
        "TensorStatistics",
        "WebhookFacts",
    }
    defined = {name for name, value in vars(facts).items() if getattr(value, "__module__", "") == facts.__name__}
    assert {type(fact).__name__ for fact, _, _ in CASES} | elsewhere == defined


def test_a_restored_store_is_a_store_with_the_tags_it_lost() -> None:
    sent = encoding.restored_json(Restored(STORE, ("b",)))
    models.RestoredModel.model_validate(sent)
    assert sent == encoding.store_json(STORE) | {"tags_taken": ["b"]}


def test_the_weight_of_a_store_is_about_its_json() -> None:
    files = tuple(File(f"folder/{number}", number, SHA) for number in range(1000))
    large = Store(**{field.name: getattr(STORE, field.name) for field in fields(Store)} | {"files": files})
    size = len(json.dumps(encoding.store_json(large)))
    assert 0.5 * size < encoding.store_weight(large) < 2 * size

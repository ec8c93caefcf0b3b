"""Signatures of SavedModels are those that the parsed message has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import protoslice
from protoslice import schema
from protoslice.errors import LimitExceeded, NotFound, Unsupported
from protoslice.facts import Signature, SignatureTensor
from protoslice.tensors.model import Model, RootProto
from protoslice.views.models import signatures_page


def saved_model(*tags: tuple[str, ...], each: int = 2) -> Any:
    """A SavedModel with a meta graph for each of `tags`, which has `each` signatures."""
    model: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    for number, of in enumerate(tags):
        graph = model.meta_graphs.add()
        graph.meta_info_def.tags.extend(of)
        graph.graph_def.node.add(name="large").attr["value"].s = bytes(20_000)
        for signature in range(each):
            called = graph.signature_def[f"call{signature}"]
            called.method_name = f"method{number}"
            put = called.inputs["images"]
            put.name, put.dtype = "images:0", 1
            put.tensor_shape.dim.add(size=-1)
            put.tensor_shape.dim.add(size=224)
            called.inputs["table"].dtype = 20
            called.outputs["scores"].coo_sparse.values_tensor_name = "values:0"
            called.outputs["scores"].dtype = 2
            called.outputs["scores"].tensor_shape.unknown_rank = True
            called.defaults["images"].tensor_content = bytes(200_000)
    return model


def due(model: Any) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for graph in model.meta_graphs:
        for name in sorted(graph.signature_def):
            yield name, graph.signature_def[name].method_name, tuple(graph.meta_info_def.tags)


def opened(tmp_path: Path, model: Any) -> protoslice.LocalModel:
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    return protoslice.open_model(tmp_path / "saved_model.pb")


def test_signatures_are_listed(tmp_path: Path) -> None:
    model = saved_model(("serve",), ("serve", "gpu"), ())
    with opened(tmp_path, model) as local:
        found = list(local.signatures())
    assert [(each.name, each.method, each.tags) for each in found] == list(due(model))
    assert found[0] == Signature(
        "call0",
        "method0",
        ("serve",),
        (
            SignatureTensor("images", "images:0", "F32", (None, 224)),
            SignatureTensor("table", None, None, ()),
        ),
        (SignatureTensor("scores", None, "F64", None),),
    )


def test_a_meta_graph_is_chosen_by_exactly_its_tags(tmp_path: Path) -> None:
    with opened(tmp_path, saved_model(("serve", "gpu"), ("serve",), (), ('a"\\b',))) as local:
        chosen = {tags: {each.method for each in local.signatures(tags)} for tags in [("serve",), ("gpu", "serve"), ()]}
        assert chosen == {("serve",): {"method1"}, ("gpu", "serve"): {"method0"}, (): {"method2"}}
        assert {each.method for each in local.signatures(['a"\\b'])} == {"method3"}
        with pytest.raises(NotFound):
            list(local.signatures(["gpu"]))


def test_a_meta_graph_by_itself(tmp_path: Path) -> None:
    graph = saved_model(("serve",)).meta_graphs[0]
    (tmp_path / "graph.meta").write_bytes(graph.SerializeToString())
    with protoslice.open_model(tmp_path / "graph.meta", type="tensorflow.MetaGraphDef") as local:
        assert [each.name for each in local.signatures()] == ["call0", "call1"]
        assert len(list(local.signatures(["serve"]))) == 2
        with pytest.raises(NotFound, match="has the tags"):
            list(local.signatures(["gpu"]))


def test_other_models_have_none(tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_bytes(saved_model(()).meta_graphs[0].graph_def.SerializeToString())
    with (
        protoslice.open_model(tmp_path / "graph.pb", type="tensorflow.GraphDef") as local,
        pytest.raises(Unsupported, match=r"Signatures of tensorflow\.GraphDef are not"),
    ):
        local.signatures()


def test_too_many_are_refused(tmp_path: Path) -> None:
    model = saved_model(("serve",), each=1)
    model.meta_graphs[0].signature_def["call0"].inputs["images"].name = "x" * (4 << 20)
    with opened(tmp_path, model) as local, pytest.raises(LimitExceeded, match="are listed"):
        list(local.signatures())


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_hold_every_signature_once(limit: int) -> None:
    model = saved_model(*[("serve",)] * 3, *[()] * 70, ("gpu",), each=2)
    for graph in list(model.meta_graphs)[3:-1]:
        graph.signature_def.clear()
    proto = protoslice.open(model.SerializeToString(), "tensorflow.SavedModel")
    whole = Model("saved_model.pb", proto.type, {}, RootProto(proto.document, proto.sources))
    found, cursor, pages = list[Signature](), None, 0
    while pages == 0 or cursor is not None:
        page = signatures_page(whole, None, limit, cursor)
        assert len(page.items) <= limit
        found, cursor, pages = [*found, *page.items], page.next, pages + 1
    assert [(each.name, each.method, each.tags) for each in found] == list(due(model))
    assert pages > 1  # 70 meta graphs without a signature are too many for one page

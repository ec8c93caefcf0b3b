"""Hostile models in every view of the page: `make browser`."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, helper, numpy_helper
from playwright.sync_api import BrowserContext, expect
from tests.browser.windows import opened
from tests.support.protos.writer import varint
from tests.support.serve import ServiceProcess
from tests.support.streams import FRAMED, example

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
LONG = "\N{HEBREW LETTER SHIN}\N{RIGHT-TO-LEFT OVERRIDE}" + MARKUP + "\N{LATIN SMALL LETTER O WITH DIAERESIS}/." * 1000
CHILDREN = 1_000_000
DEPTH = 30
"""The depth of nested graphs in attributes: a level takes three messages, and protobuf parses a hundred."""
ALONE = numpy_helper.from_array(np.array([np.nan], "<f4"), MARKUP)
TABS = (
    "weights",
    "bytes",
    "tensors",
    "tensors?grouped=1",
    "tensors?tensor=path:graph.initializer[0]",
    "graph",
    "message",
    "files",
)


def marked() -> bytes:
    """A model with markup in every text, with long names, and with numbers that are not valid."""
    tensors = [numpy_helper.from_array(np.full((40, 40), np.nan, "<f4"), f"{LONG}{n}") for n in range(30)]
    tensors.append(numpy_helper.from_array(np.array([np.inf, -np.inf, np.nan], "<f4"), MARKUP))
    nodes = [helper.make_node(MARKUP, [f"{LONG}{n}"], [f"{MARKUP}{n}"], name=f"{LONG}{n}") for n in range(30)]
    nodes[0].attribute.append(helper.make_attribute(MARKUP, LONG))
    model = helper.make_model(helper.make_graph(nodes, LONG, [], [], tensors, doc_string=MARKUP))
    model.producer_name = model.domain = model.doc_string = model.producer_version = MARKUP
    helper.set_model_props(model, {MARKUP: LONG})
    return model.SerializeToString()


def deep() -> bytes:
    """Graphs within graphs."""
    graph = GraphProto(name=MARKUP, doc_string=LONG)
    for _ in range(DEPTH):
        outer = GraphProto(name=MARKUP)
        node = outer.node.add(op_type=MARKUP, name=MARKUP)
        node.attribute.add(name=MARKUP, type=AttributeProto.GRAPH).g.CopyFrom(graph)
        graph = outer
    graph.initializer.append(ALONE)
    return ModelProto(graph=graph, ir_version=8).SerializeToString()


def wide() -> bytes:
    """A graph of a million nodes with nothing in them."""
    tensor = ALONE.SerializeToString()
    nodes = b"\x0a\x00" * CHILDREN + b"\x2a" + varint(len(tensor)) + tensor
    return b"\x08\x08\x3a" + varint(len(nodes)) + nodes


@pytest.fixture(scope="module")
def service(service: ServiceProcess) -> ServiceProcess:
    """A service with these models."""
    for name, data in (("marked", marked()), ("deep", deep()), ("wide", wide())):
        query = f"filename={name}.onnx&type=onnx.ModelProto&tag={name}"
        httpx.put(f"{service.url}/v1/stores?{query}", content=data, timeout=60).raise_for_status()
    records = FRAMED["tfrecord"]([MARKUP.encode(), LONG.encode(), b"\xff\x00", example(1)] * 100)
    named = {"filename": MARKUP.replace("/", "\N{DIVISION SLASH}"), "tag": "named"}
    for params, data in (({"filename": "events.tfrecord", "tag": "events"}, records), (named, b"a text")):
        httpx.put(f"{service.url}/v1/stores", params=params, content=data, timeout=60).raise_for_status()
    return service


@pytest.mark.parametrize("model", ["marked", "deep", "wide"])
def test_nothing_runs_and_nothing_hangs(context: BrowserContext, model: str) -> None:
    """When the window closes, it checks all console lines, policy violations and dialogs."""
    for tab in TABS:
        page = opened(context, f"/m/{model}/{tab}")
        expect(page.locator("#panel")).not_to_contain_text("Loading", timeout=20_000)
        assert page.locator("main img, main script, main iframe").count() == 0
        assert page.evaluate("document.querySelectorAll('*').length") < 5000, "a part of it is shown"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window"
        page.keyboard.press("Tab")  # only a page that is not busy answers
        page.close()


@pytest.mark.parametrize("place", ["/", "/m/events/records?record=3", "/diff/deep...wide", "/operations", "/m/named"])
def test_nothing_runs_in_other_views(context: BrowserContext, place: str) -> None:
    page = opened(context, place)
    expect(page.locator("main")).not_to_contain_text("Loading", timeout=20_000)
    assert page.locator("main img, main script, main iframe").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window"


def test_names_that_hurt_are_shown_as_they_are(context: BrowserContext) -> None:
    page = opened(context, "/m/marked/tensors?tensor=path:graph.initializer[30]")
    drawer = page.get_by_role("complementary", name="Tensor")
    expect(drawer.get_by_role("heading", level=2)).to_have_text(MARKUP)
    expect(drawer).to_contain_text("infinite")
    page.goto("/diff/deep...marked")
    expect(page.get_by_role("grid", name="Changes")).to_contain_text(MARKUP, timeout=20_000)

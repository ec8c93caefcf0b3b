"""Texts of the page in a browser: changed parts before and after, and long records: `make browser`."""

from __future__ import annotations

import httpx
import pytest
from onnx import ModelProto, helper
from playwright.sync_api import BrowserContext, expect
from tests.browser.windows import opened, violations
from tests.support.serve import ServiceProcess
from tests.support.stores import field
from tests.support.streams import FRAMED, example

MARKUP = "<script>alert(1)</script>"
LONG = 20_000


def _model(version: int) -> bytes:
    """A model; in the second version, nodes have another order, and one node has another input."""
    names = ["first", "second"] if version == 1 else ["second", "first"]
    nodes = [
        helper.make_node("Add", [f"{name} {MARKUP}", "b"] if version == 1 or name == "second" else ["changed", "b"],
            [f"{name} out"], name=name)
        for name in names
    ]  # fmt: skip
    model: ModelProto = helper.make_model(helper.make_graph(nodes, "graph", [], []), producer_name=f"maker {version}")
    model.doc_string = "\n".join(f"line {number}" for number in range(400 if version == 1 else 399))
    return model.SerializeToString()


def _long(count: int = LONG, picture: int = 0) -> bytes:
    """A tensorflow.Example record with many features of one number, and a feature with a picture."""
    number = field(2, field(3, field(1, b"\7")))
    many = b"".join(field(1, field(1, b"feature %d" % each) + number) for each in range(count))
    return field(1, field(1, field(1, b"picture") + field(2, field(1, field(1, bytes(picture))))) + many)


@pytest.fixture(scope="module")
def service(service: ServiceProcess) -> ServiceProcess:
    """Run a service with two versions of a model, streams, and a text."""
    stream = FRAMED["tfrecord"]([example(0), _long(), _long(200_000), _long(5, picture=5 << 20)])
    stored = {
        "m.onnx&tag=m:1": _model(1),
        "m.onnx&tag=m:2": _model(2),
        "long.bin&tag=long": stream,
        "x.delimited&tag=named": FRAMED["delimited"]([example(1)]),
        "notes.txt&tag=notes": b"hello",
    }
    for query, content in stored.items():
        httpx.put(f"{service.url}/v1/stores?filename={query}", content=content, timeout=60).raise_for_status()
    return service


def test_a_changed_field_stands_beside_what_it_was_with_its_words_marked(context: BrowserContext) -> None:
    page = opened(context, "/diff/m:1...m:2")
    rows = page.get_by_role("grid", name="Changes")
    moved = rows.get_by_role("row").filter(has_text="graph.node[1].input[0]")
    expect(moved).to_contain_text("was graph.node[0].input[0]")
    expect(rows.get_by_role("row").filter(has_text="reordered")).to_have_count(1)
    moved.click()
    part = page.get_by_role("complementary", name="Part")
    expect(part).to_be_focused()
    expect(part.locator("del")).to_have_text(["first <script>alert(1)</script>"])
    expect(part.locator("ins")).to_have_text(["changed"])
    expect(part.get_by_role("row").nth(1)).to_contain_text("−removedinput")
    expect(part).to_contain_text('name: "first"')
    assert violations(context, page) == "[]"
    page.keyboard.press("Escape")
    expect(part).to_have_count(0)
    expect(rows).to_be_focused()


def test_a_long_text_shows_what_differs_and_unfolds(context: BrowserContext) -> None:
    page = opened(context, "/diff/m:1...m:2?at=part doc_string")
    part = page.get_by_role("complementary", name="Part")
    expect(part.get_by_role("row")).to_have_count(1 + 1 + 3 + 1)
    expect(part.get_by_role("row").last).to_contain_text("line 399")
    part.get_by_role("button", name="396 equal lines").click()
    expect(part.get_by_role("row")).to_have_count(1 + 400)


def test_a_long_record_is_shown_from_its_beginning(context: BrowserContext) -> None:
    page = opened(context, "/m/long/records?record=1")
    record = page.get_by_role("complementary", name="Record")
    for form in ("Text", "JSON"):
        record.get_by_role("combobox", name="Format").select_option(form)
        expect(record).to_contain_text("Only the beginning is shown")
        assert page.get_by_label("The record", exact=True).evaluate("each => each.textContent.length") == 200_000


def test_a_record_too_large_for_text_is_shown_as_bytes_unless_one_field_makes_it_so(context: BrowserContext) -> None:
    page = opened(context, "/m/long/records?record=2")
    record = page.get_by_role("complementary", name="Record")
    expect(record).to_contain_text("0000  0a ")
    expect(record).to_contain_text("Only the beginning is shown")
    page.goto("/m/long/records?record=3")
    expect(record).to_contain_text('key: "feature 4"')


def test_records_are_offered_where_there_are_some(context: BrowserContext) -> None:
    for ref, offered in (("long", 1), ("named", 1), ("notes", 0), ("m:1", 0)):
        page = opened(context, f"/m/{ref}/files")
        expect(page.get_by_role("tab", name="Files")).to_be_visible()
        expect(page.get_by_role("tab", name="Records")).to_have_count(offered)

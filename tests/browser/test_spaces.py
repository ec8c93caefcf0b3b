"""The page in a browser for a user of one space: `make browser`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, expect
from tests.browser.windows import opened, violations, window
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import onnx

QUIET = ("Failed to load resource", "Clear-Site-Data header", "[DOM] Input elements")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, dict[str, str]]]:
    """Run a service that requires sign-in, with models in two spaces; yield it with tokens by name."""
    settings = {"PROTOSLICE_AUTH": "tokens", "PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    storage = tmp_path_factory.mktemp("storage").as_uri()
    with service_process("--storage", storage, settings=settings) as running:
        assert running.running.stdout is not None
        found = re.search(r"psl_\w+", running.running.stdout.readline())
        assert found is not None
        tokens = {"admin": found[0]}
        with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {found[0]}"}, timeout=60) as http:
            for space, tag in (("red", "of-red"), ("default", "of-all")):
                http.put(f"/v1/spaces/{space}").raise_for_status()
                answer = http.put(f"/spaces/{space}/v1/stores?filename=m.onnx&tag={tag}", content=_with_a_node())
                answer.raise_for_status()
            for name, scopes in (("red", ["read", "write"]),):
                made = http.post(f"/spaces/{name}/v1/tokens", json={"name": name, "scopes": scopes})
                tokens[name] = made.json()["token"]
        yield running, tokens


def _with_a_node() -> bytes:
    """A model with content for every tab."""
    weight = helper.make_tensor("weight", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    node = helper.make_node("Add", ["weight", "weight"], ["sum"], name="add")
    data: bytes = helper.make_model(helper.make_graph([node], "graph", [], [], [weight])).SerializeToString()
    return data


def test_a_person_of_another_space_is_shown_the_way_there(
    browser: Browser, service: tuple[ServiceProcess, dict[str, str]], tmp_path: Path
) -> None:
    running, tokens = service
    (tmp_path / "new.onnx").write_bytes(onnx(4_000))
    with window(browser, running.url, may_say=QUIET) as context:
        page = opened(context, "/m/of-all")
        page.get_by_label("token").fill(tokens["red"])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="You don't have access to").wait_for()
        expect(page.locator("main")).to_contain_text("red has no access to this space. Your spaces:")
        assert violations(context, page) == "[]"
        page.get_by_role("link", name="red").click()
        page.wait_for_url(f"{running.url}/spaces/red/")
        expect(page.locator(".cards li")).to_have_count(1)
        expect(page.locator("main")).not_to_contain_text("of-all")
        assert violations(context, page) == "[]"

        page.locator(".cards a").first.click()
        page.wait_for_url(f"{running.url}/spaces/red/m/of-red")
        for tab in ("tensors", "files", "graph"):
            page.get_by_role("tab", name=re.compile(tab, re.IGNORECASE)).click()
            page.wait_for_url(re.compile(f"{running.url}/spaces/red/m/of-red/{tab}"))
            page.wait_for_load_state("networkidle")
            expect(page.locator(".trouble")).to_have_count(0)
        page.reload()
        page.get_by_role("link", name="Library").click()
        page.wait_for_url(f"{running.url}/spaces/red/")

        page.locator("input[type=file]").first.set_input_files(tmp_path / "new.onnx")
        page.wait_for_url(f"{running.url}/spaces/red/m/new%3A1")
        expect(page.get_by_role("combobox", name="Space")).to_have_count(0)
    with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {tokens['admin']}"}) as http:
        assert len(http.get("/v1/stores").json()["items"]) == 1
        assert len(http.get("/spaces/red/v1/stores").json()["items"]) == 2


def test_who_may_enter_every_space_finds_the_way_back(
    browser: Browser, service: tuple[ServiceProcess, dict[str, str]]
) -> None:
    running, tokens = service
    with window(browser, running.url, may_say=QUIET) as context:
        page = opened(context, "/spaces/red/")
        page.get_by_label("token").fill(tokens["admin"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".cards li").first).to_be_visible()
        expect(page.locator("main")).not_to_contain_text("of-all")
        expect(page.get_by_role("combobox", name="Space").locator("option")).to_have_text(["default", "red"])
        page.get_by_role("combobox", name="Space").select_option("default")
        page.wait_for_url(f"{running.url}/")
        expect(page.locator("main")).to_contain_text("of-all")

"""`rm` removes what it is told to and nothing more; `restore` takes the removal of a store back."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.hub import commit

from protoslice.client import AsyncClient, Client
from protoslice.errors import Conflict, NotFound, StillNamed

PROGRAM = [sys.executable, "-m", "protoslice.cli"]
GRAPH = "tensorflow.GraphDef"
Push = Callable[..., str]


@pytest.fixture
def push(service: str) -> Push:
    """Makes a store of its own that these tags name; its id."""

    def push(*tags: str) -> str:
        with Client(service) as client:
            node = b"\x0a\x22\x0a\x20" + os.urandom(16).hex().encode()
            return client.push(node, type=GRAPH, tags=tags).store.id

    return push


def tags_of(service: str, store: str) -> set[str]:
    with Client(service) as client:
        return set(client.store(store).tags)


@pytest.mark.parametrize("form", ["{}", "@{}", "{service}/v1/stores/{}"])
def test_a_tag_goes_and_its_store_stays(call: Any, service: str, push: Push, form: str) -> None:
    store = push("tour:1", "tour:2", "tour:3")
    done = call("rm", form.format("tour:3", service=service))
    assert tags_of(service, store) == {"tour:1", "tour:2"}
    assert done.stdout == "Removed tag tour:3.\n"
    assert f"store {store[:12]} is kept; it still has the tags tour:1 tour:2" in done.stderr


def test_the_last_tag_says_how_its_store_is_removed(call: Any, service: str, push: Push) -> None:
    store = push("last:1")
    done = call("rm", "last:1")
    command = done.stderr.partition("to remove it: protoslice ")[2].split()
    call(*command, url="")
    call("info", f"@{store}", code=4)


def test_a_store_says_which_tags_went_along_and_how_it_comes_back(call: Any, service: str, push: Push) -> None:
    store = push("pair:1", "pair:2")
    done = call("rm", "--yes", store)
    assert done.stdout == f"Removed store {store} and its tags pair:1 pair:2.\n"
    command = done.stderr.partition("with: protoslice ")[2].split()
    with Client(service) as client:
        with pytest.raises(NotFound):
            client.store(store)
        assert not {tag.name for tag in client.tags()} & {"pair:1", "pair:2"}
    restored = call(*command)
    assert restored.stdout == f"{service}/m/{store}\n"
    assert "with the tags pair:1 pair:2" in restored.stderr
    assert tags_of(service, store) == {"pair:1", "pair:2"}


def test_a_tag_that_points_elsewhere_by_now_is_told(call: Any, service: str, push: Push) -> None:
    store = push("moved:1", "kept:1")
    call("rm", "--yes", store)
    other = push("moved:1")
    restored = json.loads(call("restore", store, "--json").stdout)
    assert (restored["id"], restored["tags"], restored["tags_taken"]) == (store, ["kept:1"], ["moved:1"])
    assert tags_of(service, other) == {"moved:1"}
    assert call("restore", store).stdout == f"{service}/m/{store}\n", "it is there"


@pytest.mark.parametrize("args", [["--store", "many:1"], ["{store}"], ["many:3", "--store", "many:1"]])
def test_tags_that_nobody_named_go_only_when_told_to(call: Any, service: str, push: Push, args: list[str]) -> None:
    store = push("many:1", "many:2", "many:3")
    given = [arg.format(store=store) for arg in args]
    refused = call("rm", *given, code=2)
    assert "many:2" in refused.stderr
    assert "--yes" in refused.stderr
    assert tags_of(service, store) == {"many:1", "many:2", "many:3"}
    call("rm", *given, "--yes")
    call("info", f"@{store}", code=4)


def test_the_store_of_a_tag_alone_goes_unasked(call: Any, push: Push) -> None:
    store = push("alone:1")
    told = json.loads(call("rm", "--store", "alone:1", "--json").stdout)
    assert [(each["store"], each["tags"]) for each in told] == [(store, ["alone:1"])]
    assert told[0]["restorable_until"] > "2026"


def test_several_are_removed_or_none(call: Any, service: str, push: Push) -> None:
    store, other = push("several:1", "several:2"), push("several:3")
    call("rm", "several:1", "absent:1", code=4)
    assert tags_of(service, store) == {"several:1", "several:2"}
    told = json.loads(call("rm", other, "several:1", "several:2", "several:1", "several:3", "--json").stdout)
    assert [each.get("tag") for each in told] == ["several:1", "several:2", "several:3", None]
    assert tags_of(service, store) == set()
    call("info", f"@{other}", code=4)


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_a_terminal_is_asked(service: str, push: Push, answer: str) -> None:
    store = push("asked:1", "asked:2")
    near, far = pty.openpty()
    environment = os.environ | {"PROTOSLICE_URL": service}
    with subprocess.Popen(
        [*PROGRAM, "rm", store], stdin=far, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        os.close(far)
        os.write(near, f"{answer}\n".encode())
        _, said = running.communicate(timeout=120)
    with suppress(OSError):
        os.close(near)
    assert running.returncode == 0
    assert "asked:1, asked:2: remove it with its tags? [y/N]" in said
    with Client(service) as client:
        assert (store in {each.id for each in client.stores()}) == (answer != "y")
        if answer != "y":
            assert "nothing was removed" in said
            client.remove(store, force=["asked:1", "asked:2"])


def test_the_clients_do_the_same(service: str, push: Push) -> None:
    async def both() -> None:
        async with AsyncClient(service) as client:
            with pytest.raises(Conflict, match="remove the tag"):
                await client.remove("both:1")
            with pytest.raises(StillNamed, match="both:1"):
                await client.remove(store[:16])
            removed = await client.remove(store[:16], force=["both:1"])
            assert (removed.id, removed.tags) == (store, ("both:1",))
            restored = await client.restore(store[:12])
            assert (restored.store.id, restored.store.tags, restored.tags_taken) == (store, ("both:1",), ())
            assert (await client.restore(store)).store == restored.store
            with pytest.raises(NotFound):
                await client.restore("0" * 64)

    store = push("both:1")
    asyncio.run(both())


def test_restore_takes_a_short_id(call: Any, service: str, push: Push) -> None:
    store = push("short:1")
    call("rm", "--yes", store)
    assert call("restore", store[:12]).stdout == f"{service}/m/{store}\n"
    assert tags_of(service, store) == {"short:1"}
    assert "No removed store has an id" in call("restore", store[:12], code=4).stderr


def test_restore_takes_a_tag_that_was_removed(call: Any, service: str, push: Push) -> None:
    older, newer = push("mine:1"), push("other:1")
    for store in (older, newer):
        call("tag", "both:1", store)
        call("rm", "--yes", store)
    assert call("restore", "@both:1").stdout == f"{service}/m/{newer}\n", "it was the last one with this tag"
    assert call("restore", "mine:1").stdout == f"{service}/m/{older}\n"
    assert tags_of(service, newer) == {"both:1", "other:1"}
    assert tags_of(service, older) == {"mine:1"}
    call("rm", "mine:1")
    kept = call("restore", "mine:1", code=7).stderr
    assert f"is not removed: set the tag to the store {older} again" in kept
    assert "No removed store had the tag 'never:1'" in call("restore", "never:1", code=4).stderr


def test_restore_of_an_ambiguous_id_asks_for_more(call: Any, storage: Path) -> None:
    with closing(sqlite3.connect(storage / "catalog.sqlite", timeout=60)) as catalogue, catalogue:
        catalogue.executemany(
            "INSERT INTO stores (space, id, digest, size, held, created, weight, manifest, deleted)"
            " VALUES ('default', ?, ?, 0, 0, 0, 0, x'', 1)",
            [(number, "a" * 40 + f"{number}" + "0" * 23) for number in range(2)],
        )
    assert "give more digits" in call("restore", "a" * 12, code=2).stderr


def test_rm_and_restore_take_a_url(call: Any, service: str, push: Push) -> None:
    store = push("elsewhere:1")
    call("rm", "elsewhere:1", "--url", service, url="http://127.0.0.1:9")
    call("rm", f"@{store}", "--url", service, url="")
    call("restore", store, "--url", service, url="")
    assert tags_of(service, store) == set()


def committed(service: str, name: str) -> tuple[str, bytes]:
    """A store that the branch `main` of a new repository names, and the bytes of its file."""
    content = b"\x0a\x22\x0a\x20" + os.urandom(16).hex().encode()
    organization, _, short = name.partition("/")
    with httpx.Client(base_url=service) as http:
        http.post("/api/repos/create", json={"organization": organization, "name": short}).raise_for_status()
        assert commit(http, f"models/{name}", {"graph.pb": content}).status_code == 200
        return http.get(f"/v1/stores/{name.replace('/', '%2F')}@main").json()["id"], content


def test_rm_refuses_a_store_that_a_repository_names(call: Any, service: str) -> None:
    store, content = committed(service, "cli/named")
    for options in ([], ["--yes"], ["--force", "cli/named@dev"]):
        refused = call("rm", store, *options, code=7)
        assert "still referenced by cli/named@main (hub)" in refused.stderr
        assert "--force cli/named@main" in refused.stderr
        assert httpx.get(f"{service}/cli/named/resolve/main/graph.pb").content == content
    call("rm", store, "--force", "cli/named@main")
    assert httpx.get(f"{service}/cli/named/resolve/main/graph.pb").status_code == 404
    call("restore", store)
    assert httpx.get(f"{service}/cli/named/resolve/main/graph.pb").content == content


def test_rm_removes_nothing_when_one_store_is_named_elsewhere(call: Any, service: str, push: Push) -> None:
    store, _ = committed(service, "cli/other")
    free = push("free:1")
    call("rm", free, "free:1", store, code=7)
    assert tags_of(service, free) == {"free:1"}


def test_ls_and_info_show_names_of_registries(call: Any, service: str, push: Push) -> None:
    store, _ = committed(service, "cli/shown")
    with Client(service) as client:
        client.tag("shown:1", store)
    (row,) = [line for line in call("ls").stdout.splitlines() if line.startswith(store[:12])]
    assert row.split()[-2:] == ["shown:1", "cli/shown@main"]
    assert "shown:1 cli/shown@main" in call("info", f"@{store}").stdout
    (told,) = [each for each in json.loads(call("ls", "--json").stdout) if each["id"] == store]
    assert told["names"] == [{"protocol": "tag", "name": "shown:1"}, {"protocol": "hub", "name": "cli/shown@main"}]

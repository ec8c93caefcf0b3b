"""No caller learns or changes anything in a space in which it has no scope.

S3 requests get equal answers next to a full space, an empty space, and no other space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import pytest
from tests.isolation.leaks import LEAKS
from tests.isolation.runs import Content, allowed, each_call, history, leaks, refusals_of_own, shown
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.registries.s3.test_signatures import DATA, Made, got, keys_of
from tests.support.calls import CALLS, RULES, Call
from tests.support.receiver import Receiver, running_receiver
from tests.support.serve import ask

from protoslice.server.auth.permissions import Scope
from protoslice.server.pages import html

LENGTH = 300
SCOPES: Final = (
    (Scope.WRITE, Scope.REGISTER, Scope.SCHEMAS),
    (Scope.DELETE,),
    (Scope.WRITE, Scope.DELETE),
)
"""Scopes of callers who may not read."""
CONTENTS: Final = (Content(), Content(name="secret-two"), Content(salt=" in another world"))
NAMED_WHOLE: Final = {
    "PUT /v1/tags/{tag}",
    "DELETE /v1/stores/{ref}",
    "DELETE /v2/{name:path}/manifests/{ref}",
    "DELETE /v2/{name:path}/blobs/{digest}",
}
"""Routes that use content by its whole id or digest, and so reveal its existence to callers who know the id."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


def test_every_route_is_called() -> None:
    called = {call.route for call in CALLS}
    missing = [row.replace("{ref}", "{store}") for row in RULES if row not in called]
    assert not missing, "\n".join(["add a line to tests/support/calls.py:", *missing])


def test_each_call_reaches_what_the_caller_has(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refusals are equal too, so a call proves something only if an owner gets more."""
    # The page is also there in a checkout for which `make web` did not build one.
    monkeypatch.setattr(html, "_first", lambda: {"script": "main.js", "style": "style.css", "parts": {}})
    wrong = refusals_of_own(receiver.url)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", range(3))
def test_equal_calls_get_equal_answers_in_two_worlds(seed: int, receiver: Receiver) -> None:
    """Equal calls get equal answers next to full and empty spaces, which stay unchanged."""
    assert leaks(history(seed, LENGTH), receiver.url) == []


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.long
def test_a_hole_in_the_wall_is_seen(name: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    LEAKS[name].plant(monkeypatch)
    assert [each for each in leaks(each_call(*LEAKS[name].routes), receiver.url) if "steps were" not in each]


@pytest.mark.long
def test_callers_without_read_learn_nothing_of_content(receiver: Receiver) -> None:
    """Calls of every route that changes something get equal answers for any content of the caller's space."""
    changing = [call for call in CALLS if call.route and RULES[call.route].scope not in {None, Scope.READ, Scope.ADMIN}]
    answered: list[Call] = []
    shows: list[str] = []
    for scopes in SCOPES:
        for call in allowed([each for each in changing if each not in answered], scopes, receiver.url):
            answered.append(call)
            contents = CONTENTS[:2] if call.route in NAMED_WHOLE else CONTENTS
            shows += shown(call, scopes, receiver.url, contents)
    assert not shows, "\n".join(shows)
    refused = {call.route for call in changing} - {call.route for call in answered}
    assert refused == {route for route, rule in RULES.items() if rule.reads}


SECRET = b"\x0a\x06secret"


async def _answers(store: str, *, full: bool) -> dict[tuple[str, str], tuple[int, str]]:
    """Return the answers to a caller of `own`, with content in `other` if it is `full`."""
    async with closed_service() as app:
        put = "/v1/stores?filename=m.pb&tag=m"
        writer = bearer(await token_for(app, Scope.WRITE))
        assert (await ask(app, "PUT", f"/spaces/own{put}", DATA, writer)).status == 201
        if full:
            writer = bearer(await token_for(app, Scope.WRITE, space="other"))
            assert (await ask(app, "PUT", f"/spaces/other{put}&tag=secret", SECRET, writer)).status == 201
        keys = await keys_of(app, await token_for(app, Scope.READ))
        found = {}
        for path, query in _requests(store):
            for method in ("GET", "HEAD"):
                answer = await got(app, Made(keys, path=path, query=query, method=method), method=method)
                text = re.sub("<(LastModified|RequestId|ID)>[^<]*", "", answer.body.decode("latin-1"))
                shown = {k: v for k, v in answer.headers.items() if "request-id" not in k and k != "last-modified"}
                found[method, f"{path}?{query}"] = (answer.status, f"{shown}{text}")
        return found


def _requests(store: str) -> list[tuple[str, str]]:
    """Return paths and queries of objects and listings; some of them name content of `other`."""
    keys = ["tags/m/m.pb", "tags/secret/m.pb", f"stores/{store}/m.pb", f"stores/{store}/@safetensors/m.pb"]
    prefixes = ["", "tags/", "tags/secret/", "stores/", f"stores/{store}/", "hub/", "oci/"]
    queries = [f"list-type=2&prefix={quote(prefix, safe='')}" for prefix in prefixes]
    queries += ["list-type=2&prefix=&start-after=tags%2Fs", "delimiter=%2F", "location=", "acl=", "versioning="]
    found = [("/s3", "")]
    for bucket in ("own", "other"):
        found += [(f"/s3/{bucket}/{key}", "") for key in keys]
        found += [(f"/s3/{bucket}", query) for query in queries]
    return found


async def test_other_spaces_show_nowhere_in_s3() -> None:
    async with closed_service() as app:
        writer = bearer(await token_for(app, Scope.WRITE))
        made = await ask(app, "PUT", "/spaces/own/v1/stores?filename=m.pb", SECRET, writer)
    store = made.headers["location"].rpartition("/")[2]
    full, empty = await _answers(store, full=True), await _answers(store, full=False)
    assert full == empty
    assert {status for status, _ in full.values()} >= {200, 403, 404}

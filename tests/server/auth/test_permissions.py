"""Permissions: the decision function, and every route for every caller in its, another and a missing space."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.isolation.runs import two_spaces
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import CALLS, RULES
from tests.support.hub import xorb_of
from tests.support.receiver import Receiver, running_receiver
from tests.support.serve import ask
from tests.support.stores import onnx
from tests.support.things import Filling

from protoslice.errors import InvalidInput
from protoslice.recipes import MEDIA_TYPE, Copy, RecipeWriter
from protoslice.server.app import Application, create_app
from protoslice.server.auth.permissions import EVERY_SPACE, Decision, Grant, Principal, Rule, Scope, decide, lacking
from protoslice.server.routing import RouteGroup, endpoint, routes_of
from protoslice.server.settings import Settings

OWN, OTHER = "team", "rivals"


def robot(*scopes: Scope, tags: tuple[str, ...] = (), space: str = OWN) -> Principal:
    return Principal("1", "robot", (Grant(space, frozenset(scopes), tags),))


@pytest.mark.parametrize("scope", Scope)
def test_a_caller_without_a_name_is_asked_for_one(scope: Scope) -> None:
    assert decide(None, OWN, scope) is Decision.UNAUTHENTICATED


@pytest.mark.parametrize(("held", "needed"), list(product(Scope, Scope)))
def test_a_scope_gives_itself_and_admin_gives_all(held: Scope, needed: Scope) -> None:
    expected = Decision.ALLOWED if held in (needed, Scope.ADMIN) else Decision.FORBIDDEN
    assert decide(robot(held), OWN, needed) is expected
    assert decide(robot(held, space=EVERY_SPACE), OWN, needed) is expected
    assert decide(robot(held), OTHER, needed) is Decision.INVISIBLE, "as if there were no such space"


def test_a_grant_of_nothing_shows_nothing() -> None:
    assert decide(robot(), OWN, Scope.READ) is Decision.INVISIBLE


@pytest.mark.parametrize(
    ("scope", "tags", "expected"),
    [
        (Scope.READ, ("prod",), Decision.ALLOWED),
        (Scope.WRITE, ("ci-1",), Decision.ALLOWED),
        (Scope.WRITE, ("ci-1", "resnet50:4"), Decision.ALLOWED),
        (Scope.WRITE, (), Decision.ALLOWED),
        (Scope.WRITE, ("prod",), Decision.FORBIDDEN),
        (Scope.WRITE, ("ci-1", "prod"), Decision.FORBIDDEN),
        (Scope.WRITE, ("xci-1",), Decision.FORBIDDEN),
        (Scope.DELETE, ("ci-1",), Decision.ALLOWED),
        (Scope.DELETE, ("ci-1", "prod"), Decision.FORBIDDEN),
        (Scope.DELETE, (), Decision.FORBIDDEN),
    ],
)
def test_patterns_limit_changes(scope: Scope, tags: tuple[str, ...], expected: Decision) -> None:
    limited = robot(Scope.READ, Scope.WRITE, Scope.DELETE, tags=("ci-*", "resnet50:*"))
    assert decide(limited, OWN, scope, tags) is expected


def test_grants_do_not_add_up() -> None:
    both = Principal("2", "both", (*robot(Scope.WRITE, tags=("ci-*",)).grants, *robot(Scope.DELETE).grants))
    assert decide(both, OWN, Scope.WRITE, ("prod",)) is Decision.FORBIDDEN
    assert decide(both, OWN, Scope.DELETE, ("prod",)) is Decision.ALLOWED


@pytest.mark.parametrize(
    ("space", "scope", "tags", "words"),
    [
        (OWN, Scope.DELETE, ("ci-1",), "the token lacks the scope delete"),
        (EVERY_SPACE, Scope.ADMIN, (), "the token lacks the scope admin in every space"),
        (
            OWN,
            Scope.WRITE,
            ("ci-1", "prod"),
            "the token lacks the scope write for the tags ci-1, prod: it is limited to the tags ci-*",
        ),
        (
            OWN,
            Scope.SCHEMAS,
            (),
            "the token lacks the scope schemas for requests that name no tag: it is limited to the tags ci-*",
        ),
    ],
)
def test_a_refusal_tells_what_is_missing(space: str, scope: Scope, tags: tuple[str, ...], words: str) -> None:
    assert lacking(robot(Scope.WRITE, Scope.SCHEMAS, tags=("ci-*",)), space, scope, tags) == words


READ, WRITE, DELETE, ADMIN = Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN
SPACES = ["own", "other", "missing", "default"]
LIMITED = "limited"
HIDDEN = "No space"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


async def principals(app: Application) -> dict[str, str | None]:
    """Return tokens of every kind, by name; None for a caller without a token."""
    return {
        "nobody": None,
        "garbage": "psl_" + "0" * 48,
        "expired": await token_for(app, *Scope, seconds=-1),
        **{str(scope): await token_for(app, scope) for scope in Scope},
        LIMITED: await token_for(app, READ, WRITE, DELETE, tags=("ci-*",)),
        "reads everywhere": await token_for(app, READ, space=EVERY_SPACE),
        "admin everywhere": await token_for(app, ADMIN, space=EVERY_SPACE),
    }


def expected(who: str, rule: Rule, row: str, space: str) -> int:
    """Return the status of the refusal, or 0 for an allowed request, computed without `decide`."""
    if rule.scope is None:
        return 0
    if who in {"nobody", "garbage", "expired"}:
        return 401
    everywhere = who.endswith("everywhere")
    if not everywhere and (rule.everywhere or space != "own"):
        return 404
    held = {READ, WRITE, DELETE} if who == LIMITED else {READ} if who.startswith("reads") else {ADMIN}
    held = held if who == LIMITED or everywhere else {Scope(who)}
    if ADMIN not in held and not {rule.scope, *([READ] if rule.reads else [])} <= held:
        return 403
    named = "{tag}" in row or "{name:repository}" in row or re.search("/v2/{name|/mlflow-artifacts/.*{name", row)
    if who == LIMITED and (rule.scope is DELETE or named) and rule.scope is not READ:
        return 403  # the path names the tag `x`, or the repository `a/x`; a removal of a store names none
    return 404 if space == "missing" else 0


async def test_every_route_for_every_caller_in_every_space(app: Application) -> None:
    callers, wrong = await principals(app), list[str]()
    for row in RULES:
        rule = RULES[row]
        if " /s3" in row:  # its buckets are spaces, and its refusals have codes: see tests of S3
            continue
        method, _, template = row.partition(" ")
        named = template.replace("{name:repository}", "a/x").replace("{name:owned}", "a/x").replace("{kind}", "models")
        named = named.replace("{ref}", "0" * 64) if method == "DELETE" else named  # anything shorter needs `read` too
        path = re.sub(r"{(\w+)(:path)?}", "x", named)
        for space in SPACES:
            for who, token in callers.items():
                root = "" if space == "default" else f"/spaces/{space}"
                got = await ask(app, method, root + path, headers=bearer(token))
                refused = (
                    got.status
                    if got.status in {401, 403} or (HIDDEN in got.text and "No space 'x'" not in got.text)
                    else 0
                )
                refused = 404 if "No access to this space" in got.text else refused
                if refused != expected(who, rule, row, space):
                    wrong.append(f"{who}: {row} in {space}: {got.status} {got.text[:200]}")
                if got.status == 401:
                    assert got.headers["www-authenticate"].startswith(("Bearer ", "Basic ")), got
    assert wrong == []


async def test_every_route_has_a_rule(app: Application) -> None:
    assert {row: route.rule for row, route in routes_of(app.router.routes)}.items() <= app.rules.items()
    assert all(isinstance(rule, Rule) for rule in app.rules.values())


async def _new() -> None: ...


def test_a_route_without_a_rule_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="rule"):
        RouteGroup().add("/v1/new", _new)
    with pytest.raises(TypeError, match="rule"):
        endpoint(RouteGroup(), "GET /v1/new")(_new)  # type: ignore[call-arg]


async def test_a_service_with_a_route_of_the_framework_does_not_start() -> None:
    app = create_app(Settings(storage="memory://"))
    app.add_api_route("/v1/new", _new)
    with pytest.raises(RuntimeError, match="/v1/new"):
        async with app.router.lifespan_context(app):
            pass


async def test_a_hidden_space_and_a_missing_one_look_the_same(app: Application) -> None:
    token = await token_for(app, ADMIN)
    for path in ("/v1/stores", "/v1/stores/x/files/a", "/v1/tokens", "/", "/livez"):
        seen = set()
        for space in ("other", "absent"):
            got = await ask(app, "GET", f"/spaces/{space}{path}", headers=bearer(token))
            seen.add((got.status, re.sub(r'"request_id": "\w+"|other|absent', "", got.text)))
        assert len(seen) == 1, path


def tags_set(tag: str, store: str) -> dict[str, tuple[str, str, bytes, dict[str, str]]]:
    """Return every request that sets or removes `tag`, by name."""
    metadata = {"upload-metadata": f"tag {b64encode(tag.encode()).decode()}", "upload-length": "5"}
    begin = {"tus-resumable": "1.0.0"}
    in_json = {"content-type": "application/json"}
    return {
        "query of PUT": ("PUT", f"/v1/stores?filename=m&tag=ci-1&tag={tag}", onnx(10), {}),
        "query of POST": ("POST", f"/v1/stores?filename=m&tag={tag}", onnx(10), {}),
        "tus metadata": ("POST", "/v1/uploads", b"", begin | metadata),
        "query of tus": ("POST", f"/v1/uploads?tag={tag}", b"", begin | {"upload-length": "5"}),
        "assemble": (
            "POST",
            "/v1/stores/assemble",
            json.dumps({"uploads": {"a": "x"}, "tags": [tag]}).encode(),
            in_json,
        ),
        "repository": ("POST", "/api/repos/create", b'{"name":"r","organization":"%b"}' % tag.encode(), in_json),
        "branch": ("POST", f"/api/models/{tag}%2Fr/branch/b", b"{}", in_json),
        "tag": ("PUT", f"/v1/tags/{tag}", json.dumps({"store": store}).encode(), in_json),
        "removal of a tag": ("DELETE", f"/v1/tags/{tag}", b"", {}),
    }


async def test_patterns_cover_every_way_of_setting_a_tag(app: Application) -> None:
    owner, limited = await token_for(app, ADMIN), await token_for(app, READ, WRITE, DELETE, tags=("ci-*",))
    made = await ask(app, "PUT", "/spaces/own/v1/stores?filename=m&tag=prod", onnx(10), bearer(owner))
    store = json.loads(made.body)["id"]
    for tag, refused in (("prod", True), ("ci-2", False)):
        for way, (method, path, body, headers) in tags_set(tag, store).items():
            got = await ask(app, method, f"/spaces/own{path}", body, headers | bearer(limited))
            assert (got.status == 403) is refused, (way, tag, got)
    for method, path in (("DELETE", f"/v1/stores/{store}"), ("POST", f"/v1/stores/{store}/restore")):
        assert (await ask(app, method, f"/spaces/own{path}", headers=bearer(limited))).status == 403


@pytest.mark.parametrize("slash", ["/", "%2F", "%2f"])
async def test_patterns_are_compared_with_names_of_repositories_as_they_are_meant(slash: str, app: Application) -> None:
    limited = bearer(await token_for(app, READ, WRITE, DELETE, tags=("team/*",)))
    for owner, refused in (("team", False), ("prod", True), ("te%61m", False), ("%70rod", True)):
        for method, path in (
            ("POST", f"/api/models/{owner}{slash}m/branch/b"),
            ("POST", f"/{owner}{slash}m.git/info/lfs/objects/batch"),
            ("DELETE", f"/api/models/{owner}{slash}m/tag/t"),
            ("POST", f"/v2/{owner}{slash}m/blobs/uploads/"),
            ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{owner}{slash}m"),
        ):
            body = b'{"operation": "upload", "objects": []}'  # a batch of downloads needs no permission to write
            got = await ask(app, method, f"/spaces/own{path}", body, limited | {"content-type": "application/json"})
            assert (got.status == 403) is refused, (method, path, got)


async def test_tags_of_a_registration_are_asked_about(app: Application) -> None:
    limited = await token_for(app, Scope.REGISTER, tags=("ci-*",))
    for tag, status in (("prod", 403), ("ci-1", 422)):
        body = json.dumps({"files": {"a": "file:///none"}, "tags": [tag]}).encode()
        headers = bearer(limited) | {"content-type": "application/json"}
        assert (await ask(app, "POST", "/spaces/own/v1/stores/register", body, headers)).status == status


async def test_writing_alone_copies_nothing_out_of_stores(app: Application) -> None:
    writer = await token_for(app, WRITE)
    headers = bearer(writer) | {"content-type": MEDIA_TYPE}
    known = await ask(app, "PUT", "/spaces/own/v1/stores?filename=m.onnx", onnx(10), bearer(writer))
    for store in (json.loads(known.body)["id"], "0" * 64):
        lines = RecipeWriter()
        recipe = lines.file("m.bin") + lines.copy(Copy(store, "m.onnx", 0, 1))
        got = await ask(app, "PUT", "/spaces/own/v1/stores", recipe, headers)
        assert (got.status, json.loads(got.body)["scope"]) == (403, "read")


async def test_authorized_answers_are_private(app: Application) -> None:
    token = bearer(await token_for(app, ADMIN))
    made = await ask(app, "PUT", "/spaces/own/v1/stores?filename=m.onnx&tag=m", onnx(10), token)
    store = json.loads(made.body)["id"]
    paths = [
        f"/v1/stores/{store}/files/m.onnx",
        "/v1/stores/m/files/m.onnx",
        f"/v1/stores/{store}/tree",
        "/v1/tags",
    ]
    for path in (*paths, f"/v1/stores/{store}", "/v1/stores", f"/v1/stores/{store}/tensors/weight-0"):
        got = await ask(app, "GET", f"/spaces/own{path}", headers=token)
        assert got.status == 200, got
        assert got.headers["cache-control"].startswith("private, "), path
        assert "public" not in got.headers["cache-control"]


async def test_files_under_the_urls_of_registries_are_private(app: Application) -> None:
    token = bearer(await token_for(app, ADMIN))
    digest = f"sha256:{hashlib.sha256(b'secret').hexdigest()}"
    made = await ask(app, "POST", f"/spaces/own/v2/team/m/blobs/uploads/?digest={digest}", b"secret", token)
    assert made.status == 201, made
    as_json = token | {"content-type": "application/json"}
    await ask(app, "POST", "/spaces/own/api/repos/create", b'{"organization": "team", "name": "m"}', as_json)
    lines = b"\n".join(
        json.dumps({"key": key, "value": value}).encode()
        for key, value in (("header", {"summary": "s"}), ("file", {"content": "c2VjcmV0", "path": "f"}))
    )
    done = await ask(app, "POST", "/spaces/own/api/models/team/m/commit/main", lines, token)
    assert done.status == 200, done
    for path in (f"/v2/team/m/blobs/{digest}", "/team/m/resolve/main/f"):
        got = await ask(app, "GET", f"/spaces/own{path}", headers=token)
        assert (got.status, got.body) == (200, b"secret"), got
        assert got.headers["cache-control"].startswith("private, "), path


HOSTILE = [
    *(("GET", path, {}) for path in (
        "//v1/stores", "/v1//stores", "/v1/stores/", "/./v1/stores", "/v1/../v1/stores", "/%2e/v1/stores",
        "/v1%2fstores", "/%76%31/stores", "/spaces/own/../other/v1/stores", "/spaces/own/%2e%2e/other/v1/stores",
        "/spaces/own//v1/stores",
        "/spaces/own/spaces/other/v1/stores", "/spaces//v1/stores", "/spaces/OWN/v1/stores", "/livez/../v1/stores",
        "/docs/../metrics", "/spaces/own%2f..%2fother/v1/stores", "/v1/stores%00", "/v1/stores;x",
        "/spaces/*/v1/stores",
    )),
    ("POST", "/v1/stores", {"x-http-method-override": "GET"}),
    ("POST", "/v1/uploads/x", {"x-http-method-override": "DELETE"}),
    ("OPTIONS", "/v1/stores", {}),
    *(("GET", "/v1/stores", {"authorization": value}) for value in (
        "", " ", "Bearer", "Bearer ", "Bearer \x00", "Basic", "Basic !", "Basic " + b64encode(b"no-colon").decode(),
        "Basic " + b64encode(b"\xff:\xff").decode(), "Digest x", "Bearer " + "psl_" * 2000, "bearer psl_" + "0" * 48,
        "Bearer a, Bearer b", "Negotiate psl_" + "0" * 48,
    )),
]  # fmt: skip


@pytest.mark.parametrize("with_token", [False, True])
async def test_hostile_requests_get_nothing(with_token: bool, app: Application) -> None:
    """A caller without a token, or with a token for `own` only, gets no content of another space."""
    token = bearer(await token_for(app, *Scope) if with_token else None)
    for method, path, headers in HOSTILE:
        got = await ask(app, method, path, headers={**token, **headers})
        assert got.status in {400, 401, 404, 405}, (method, path, headers, got)


@pytest.mark.parametrize("prefix", ["file://{}", "file://{}/", "FILE://{}/store", "file://{}/store/spaces/other"])
async def test_registering_out_of_the_storage_itself_is_refused_at_the_start(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="REGISTER_ALLOW"):
        async with closed_service(storage=f"file://{tmp_path}/store", register_allow=(prefix.format(tmp_path),)):
            pass


@pytest.mark.parametrize("prefix", ["file://{}/stores", "file://{}/other/", "s3://models/"])
async def test_registering_beside_the_storage_is_allowed(prefix: str, tmp_path: Path) -> None:
    async with closed_service(storage=f"file://{tmp_path}/store", register_allow=(prefix.format(tmp_path),)):
        pass


async def test_memory_without_a_name_is_beside_everything() -> None:
    async with closed_service(register_allow=("memory://named",)):
        pass


UNTAGGED = {
    "DELETE /v1/schemas/{name}", "PUT /v1/schemas/{name}",
    "DELETE /v1/uploads/{upload}", "GET /v1/uploads/{upload}", "PATCH /v1/uploads/{upload}",
    "POST /v1/uploads/{upload}",
    "POST /v1/stores", "POST /v1/uploads",
}  # fmt: skip
"""The routes that change no tag and no repository, and two whose calls are in `tags_set`."""


async def test_every_route_that_changes_tags_asks_about_them(receiver: Receiver) -> None:
    """A caller with rights to other tags is refused each changing route, except the listed ones."""
    async with two_spaces(receiver.url) as (app, owner):
        things = await Filling(app, "own", owner).fill("mine", receiver.url)
        caller = bearer(await token_for(app, *(set(Scope) - {ADMIN}), tags=("other-*",)))
        refused = set[str]()
        for call in CALLS:
            method, target, body, headers = call.filled(things, "/spaces/own")
            got = await ask(app, method, f"/spaces/own{target}", body, {**headers, **caller})
            refused |= {call.route} if got.status == 403 else set()
    changing = {row for row, rule in RULES.items() if rule.scope not in {None, READ, ADMIN}}
    changing = {row for row in changing if " /s3" not in row}  # it refuses changes for all callers
    assert changing - refused == UNTAGGED


async def test_an_empty_login_is_none(app: Application) -> None:
    for sent, words in ((None, "Token required"), (":", "Token required"), ("robot:x", "Invalid token")):
        basic = {} if sent is None else {"authorization": "Basic " + b64encode(sent.encode()).decode()}
        got = await ask(app, "GET", "/v2/", headers=basic)
        assert (got.status, words in got.text) == (401, True), got


JSON = {"content-type": "application/json"}


async def test_describing_takes_the_rights_for_the_store(app: Application) -> None:
    owner = bearer(await token_for(app, *Scope))
    id = json.loads((await ask(app, "PUT", "/spaces/own/v1/stores?filename=m&tag=ci-1", b"x", owner)).body)["id"]
    body = json.dumps({"description": "mine"}).encode()

    async def status(*scopes: Scope, tags: tuple[str, ...] = ()) -> int:
        headers = bearer(await token_for(app, *scopes, tags=tags)) | JSON
        return (await ask(app, "PATCH", f"/spaces/own/v1/stores/{id}", body, headers)).status

    assert await status(Scope.WRITE) == 403, "who may not read learns nothing"
    assert await status(Scope.READ, Scope.DELETE) == 403
    assert await status(Scope.READ, Scope.WRITE, tags=("other-*",)) == 403
    assert await status(Scope.READ, Scope.WRITE, tags=("ci-*",)) == 200
    assert await status(Scope.READ, Scope.WRITE) == 200


async def test_a_refusal_says_why_in_the_header_that_clients_show(app: Application) -> None:
    reader = bearer(await token_for(app, Scope.READ))
    body = json.dumps({"name": "model", "organization": "team"}).encode()
    asked = [("lacks the scope write", 403, reader), ("Invalid token", 401, bearer("wrong"))]
    for words, status, headers in [*asked, ("Token required", 401, {})]:
        told = await ask(app, "POST", "/spaces/own/api/repos/create", body, headers)
        assert (told.status, words in told.headers.get("x-error-message", "")) == (status, True), told


@pytest.mark.parametrize(("scopes", "status"), [((Scope.WRITE, Scope.READ), 201), ((Scope.WRITE,), 403)])
async def test_a_token_that_may_not_read_mounts_nothing(
    scopes: tuple[Scope, ...], status: int, app: Application
) -> None:
    data = b"a blob of another repository"
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    writer = bearer(await token_for(app, Scope.WRITE, Scope.READ))
    sent = await ask(app, "POST", f"/spaces/own/v2/team/first/blobs/uploads/?digest={digest}", data, writer)
    assert sent.status == 201
    at = f"/spaces/own/v2/team/second/blobs/uploads/?mount={digest}&from=team%2Ffirst"
    assert (await ask(app, "POST", at, b"", bearer(await token_for(app, *scopes)))).status == status
    blob = await ask(app, "GET", f"/spaces/own/v2/team/second/blobs/{digest}", b"", writer)
    assert blob.status == (200 if status == 201 else 404)


async def test_a_session_is_opened_by_the_token_that_began_it_alone(app: Application) -> None:
    token, other, reader = [
        await token_for(app, *scopes)
        for scopes in ((Scope.READ, Scope.WRITE), (Scope.READ, Scope.WRITE), (Scope.READ,))
    ]
    made = json.dumps({"name": "a/x", "type": "model"}).encode()
    kind = {"content-type": "application/json"}
    root = "/spaces/own/api"
    assert (await ask(app, "POST", f"{root}/repos/create", made, bearer(token) | kind)).status == 200
    asked = f"{root}/models/a/x/xet-write-token/main"
    assert (await ask(app, "GET", asked)).status == 401
    assert (await ask(app, "GET", asked, headers=bearer(reader))).status == 403
    told = json.loads((await ask(app, "GET", asked, headers=bearer(token))).body)
    assert bearer(told["accessToken"]) == bearer(token)
    hash, data = xorb_of(b"abc")
    path = f"{urlsplit(told['casUrl']).path}/v1/xorbs/default/{hash}"
    answers = [
        (await ask(app, "POST", path, data, headers)).status
        for headers in ({}, bearer(reader), bearer(other), bearer(token))
    ]
    assert answers == [401, 403, 404, 200]

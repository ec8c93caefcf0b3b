"""Quotas over HTTP: every kind of upload is refused when a space is full, before a declared body is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Final

import pytest
from starlette.types import Message, Receive
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import CALLS, RULES, WRITING, Call
from tests.support.hub import header, inline, shard_of, xorb_of
from tests.support.serve import Asked, ask
from tests.support.stores import onnx
from tests.support.things import Filling

from protoslice.catalog.spaces import Quota
from protoslice.server.app import Application
from protoslice.server.auth.permissions import EVERY_SPACE, Scope
from protoslice.server.context import RequestContext
from protoslice.server.registries.hub import lfs

MODEL: Final = onnx(30_000)
OID: Final = sha256(MODEL).hexdigest()
LARGE: Final = onnx(1_000_000)
ROOM: Final = 10_000
HOOK: Final = "http://127.0.0.1:1/"
JSON: Final = {"content-type": "application/json"}
LINES: Final = {"content-type": "application/x-ndjson"}
EVERYTHING: Final = tuple(Scope)


COUNTED: Final = """
    SELECT coalesce(sum(n), 0) FROM (
        SELECT count(*) AS n FROM repositories WHERE id > 1 UNION ALL
        SELECT count(*) FROM names WHERE kind NOT IN ('folder', 'sealed', 'files') UNION ALL
        SELECT count(*) FROM commits UNION ALL
        SELECT count(*) FROM manifests UNION ALL
        SELECT count(*) FROM former_names UNION ALL
        SELECT count(*) FROM kept_files WHERE kind IN ('file', 'blob')
    ) counted"""


async def entries(app: Application) -> tuple[int, int]:
    """Return the recorded number of all spaces' entries, and their number by a new count."""
    assert app.services.opened is not None
    database = app.services.opened.database
    used = await database.read(lambda tx: tx.all("SELECT coalesce(sum(entries), 0) FROM usage")[0][0])
    return int(used), int(await database.read(lambda tx: tx.all(COUNTED)[0][0]))


def problem(answer: Asked) -> dict[str, Any]:
    """Return the problem of a refusal."""
    return dict(json.loads(answer.body))


def commit(*operations: Any) -> bytes:
    """Return the body of a hub commit."""
    return "\n".join(json.dumps({"key": key, "value": value}) for key, value in operations).encode()


async def bounded(app: Application, **limits: int) -> dict[str, str]:
    """Return the header of a token with all rights in the space `own`, which has a quota."""
    assert app.services.spaces is not None
    await app.services.spaces.create("own", Quota(**limits))
    return bearer(await token_for(app, *EVERYTHING))


async def unread(app: Application, method: str, target: str, headers: dict[str, str]) -> Asked:
    """Return the answer to a request whose body of `MODEL`'s length never arrives."""

    async def never() -> Message:
        raise AssertionError("the body was asked for")

    def without_body(_: Receive) -> Receive:
        return never

    return await ask(app, method, target, headers=headers | {"content-length": str(len(MODEL))}, receiving=without_body)


WAYS: Final = {
    "PUT /v1/stores": ("PUT", "/v1/stores?filename=m.onnx", {}),
    "POST a form": ("POST", "/v1/stores", {"content-type": "multipart/form-data; boundary=b"}),
    "an archive": ("PUT", "/v1/stores", {"content-type": "application/x-tar"}),
    "tus, with bytes": ("POST", "/v1/uploads", {"tus-resumable": "1.0.0", "upload-length": str(len(MODEL))}),
    "MLflow": ("PUT", "/api/2.0/mlflow-artifacts/artifacts/e/r/artifacts/m.bin", {}),
    "the hub's commits": ("POST", "/api/models/me/m/commit/main", {"content-type": "application/x-ndjson"}),
    "OCI": ("POST", f"/v2/m/blobs/uploads/?digest=sha256:{OID}", {"content-type": "application/octet-stream"}),
}
"""The uploads whose bodies have a length: method, target and headers."""


@pytest.mark.parametrize("way", WAYS)
async def test_a_declared_body_is_refused_unread(way: str, app: Application) -> None:
    inside = await bounded(app, stored_bytes=ROOM)
    await ask(app, "POST", "/spaces/own/api/repos/create", b'{"name":"me/m"}', inside | JSON)
    method, target, headers = WAYS[way]
    refused = await unread(app, method, f"/spaces/own{target}", headers | inside)
    assert refused.status == 403, refused.text
    assert "the space stores 0 B of at most 9.77 KiB (10000 B)" in refused.text


async def test_a_length_that_comes_later_is_refused_as_well(app: Application) -> None:
    inside = await bounded(app, stored_bytes=ROOM)
    tus = inside | {"tus-resumable": "1.0.0"}
    told = await ask(app, "POST", "/spaces/own/v1/uploads", b"", tus | {"upload-length": str(len(MODEL))})
    assert (told.status, problem(told)["type"]) == (403, "/problems/quota-exceeded")
    begun = await ask(app, "POST", "/spaces/own/v1/uploads", b"", tus | {"upload-defer-length": "1"})
    more = tus | {"upload-offset": "0", "content-type": "application/offset+octet-stream"}
    place = begun.headers["location"].removeprefix("http://localhost")
    assert (await ask(app, "PATCH", place, MODEL, more)).status == 403


async def test_bytes_without_a_length_are_counted_as_they_come(app: Application) -> None:
    inside = await bounded(app, stored_bytes=ROOM)
    chunked = inside | {"transfer-encoding": "chunked"}
    for target in ("/v1/stores?filename=m.onnx", "/api/2.0/mlflow-artifacts/artifacts/e/r/artifacts/m.bin"):
        refused = await ask(app, "PUT", f"/spaces/own{target}", MODEL, chunked, sized=False)
        assert refused.status == 403, refused.text
    assert app.services.spaces is not None
    assert (await app.services.spaces.get("own")).quotas.used.stored_bytes <= ROOM


async def test_a_commit_with_its_bytes_in_words_is_refused(app: Application) -> None:
    inside = await bounded(app, stored_bytes=ROOM)
    await ask(app, "POST", "/spaces/own/api/repos/create", b'{"name":"me/m"}', inside | JSON)
    body = commit(header(), inline("m.onnx", MODEL))
    kind = inside | {"content-type": "application/x-ndjson", "transfer-encoding": "chunked"}
    refused = await ask(app, "POST", "/spaces/own/api/models/me/m/commit/main", body, kind, sized=False)
    assert refused.status == 403, refused.text


async def test_stores_have_a_limit_by_every_way_that_makes_one(app: Application) -> None:
    inside = await bounded(app, stores=1)
    first = await ask(app, "PUT", "/spaces/own/v1/stores?filename=m.onnx", MODEL, inside)
    assert first.status == 201
    id, base = json.loads(first.body)["id"], "/spaces/own"
    form = b'--b\r\ncontent-disposition: form-data; name="f"; filename="a"\r\n\r\nx\r\n--b--\r\n'
    tus = inside | {"tus-resumable": "1.0.0", "upload-length": "1", "upload-concat": "partial"}
    tus |= {"content-type": "application/offset+octet-stream"}
    whole = (await ask(app, "POST", "/spaces/own/v1/uploads", b"x", tus)).headers["location"]
    copied = json.dumps({"uploads": {"copy": whole}}).encode()
    await ask(app, "POST", f"{base}/api/repos/create", b'{"name":"me/m"}', inside | JSON)
    for method, path, body, kind in (
        ("PUT", "/v1/stores?filename=n.onnx", b"other", "application/octet-stream"),
        ("POST", "/v1/stores", form, "multipart/form-data; boundary=b"),
        ("POST", "/v1/stores/assemble", copied, "application/json"),
        ("POST", "/api/models/me/m/commit/main", commit(header(), inline("a", b"x")), "application/x-ndjson"),
    ):
        refused = await ask(app, method, base + path, body, inside | {"content-type": kind})
        assert refused.status == 403, (path, refused.text)
        assert "the space has 1 of at most 1 stores" in refused.text
    assert (await ask(app, "DELETE", f"{base}/v1/stores/{id}", b"", inside)).status == 200
    assert (await ask(app, "PUT", f"{base}/v1/stores?filename=n.onnx", b"other", inside)).status == 201


async def test_another_space_has_room(app: Application) -> None:
    await bounded(app, stored_bytes=1)
    outside = bearer(await token_for(app, *EVERYTHING, space="other"))
    assert (await ask(app, "PUT", "/spaces/other/v1/stores?filename=m", MODEL, outside)).status == 201


async def test_open_uploads_of_a_space_are_refused_for_now(app: Application) -> None:
    inside = await bounded(app, open_uploads=1) | {"tus-resumable": "1.0.0", "upload-length": "9"}
    assert (await ask(app, "POST", "/spaces/own/v1/uploads", b"", inside)).status == 201
    refused = await ask(app, "POST", "/spaces/own/v1/uploads", b"", inside)
    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert "the space has 1 open uploads, and at most 1 are allowed" in refused.text


@pytest.mark.parametrize(("given", "word"), [({"space_quota_requests": 1}, "space"), ({}, "client")])
async def test_requests_under_way_have_limits_of_their_space_and_of_their_principal(given: Any, word: str) -> None:
    async with closed_service(**given or {"max_requests_per_principal": 1}) as app:
        inside = bearer(await token_for(app, *EVERYTHING))
        waiting, going = asyncio.Event(), asyncio.Event()

        def held(receive: Receive) -> Receive:
            async def slow() -> Message:
                waiting.set()
                await going.wait()
                return await receive()

            return slow

        target = "/spaces/own/v1/stores?filename=m"
        first = asyncio.create_task(ask(app, "PUT", target, b"model", inside, receiving=held))
        await waiting.wait()
        refused = await ask(app, "GET", "/spaces/own/v1/stores", b"", inside)
        assert (refused.status, problem(refused)["type"]) == (429, f"/problems/{word}-limit")
        assert refused.headers["retry-after"] == "5"
        other = bearer(await token_for(app, Scope.READ, space="other"))
        assert (await ask(app, "GET", "/spaces/other/v1/stores", b"", other)).status == 200
        going.set()
        assert (await first).status == 201
        assert (await ask(app, "GET", "/spaces/own/v1/stores", b"", inside)).status == 200


async def test_quotas_are_set_and_usage_is_told_to_admins_and_in_metrics() -> None:
    async with closed_service(space_quota_requests=9) as app:
        assert app.services.initial_admin_token is not None
        admin, local = bearer(app.services.initial_admin_token.text), bearer(await token_for(app, Scope.ADMIN))
        body = b'{"quota_bytes": 1000000, "quota_stores": 3}'
        assert (await ask(app, "PUT", "/v1/spaces/own", body, local | JSON)).status == 404, (
            "an admin of the space alone"
        )
        said = json.loads((await ask(app, "PUT", "/v1/spaces/own", body, admin | JSON)).body)
        assert (said["quota_bytes"], said["quota_stores"], said["quota_requests"]) == (1_000_000, 3, 9)
        await ask(app, "PUT", "/spaces/own/v1/stores?filename=m.onnx", MODEL, admin)
        again = json.loads((await ask(app, "PUT", "/v1/spaces/own", b"", admin)).body)
        assert (again["stores"], again["quota_bytes"]) == (1, 1_000_000), "no body, no change"
        listed = json.loads((await ask(app, "GET", "/v1/spaces", b"", admin)).body)["items"]
        assert [each for each in listed if each["name"] == "own"] == [again]
        assert again["stored_bytes"] >= len(MODEL)
        metrics = (await ask(app, "GET", "/metrics", b"", admin)).text
        assert 'protoslice_space_stores{space="own"} 1.0' in metrics
        assert 'protoslice_space_quota_bytes{space="own"} 1e+06' in metrics
        changed = json.loads((await ask(app, "PATCH", "/v1/spaces/own", b'{"quota_requests": 0}', admin | JSON)).body)
        assert (changed["quota_bytes"], changed["quota_stores"], changed["quota_requests"]) == (1_000_000, 3, 0)
        body = b'{"quota_bytes": null, "quota_requests": null}'
        changed = json.loads((await ask(app, "PATCH", "/v1/spaces/own", body, admin | JSON)).body)
        assert (changed["quota_bytes"], changed["quota_stores"], changed["quota_requests"]) == (0, 3, 9)
        assert (await ask(app, "PATCH", "/v1/spaces/absent", b"{}", admin | JSON)).status == 404
        assert (await ask(app, "PATCH", "/v1/spaces/own", b"{}", local | JSON)).status == 404
        for wrong in (b'{"quota_bytes": -1}', b'{"quota": 1}', b'{"quota_stores": 9223372036854775808}', b"[]"):
            assert (await ask(app, "PUT", "/v1/spaces/own", wrong, admin | JSON)).status == 400, wrong


async def test_files_that_the_hub_is_told_of_are_refused_before_one_is_sent(app: Application) -> None:
    inside = await bounded(app, stored_bytes=ROOM)
    await ask(app, "POST", "/spaces/own/api/repos/create", b'{"name":"me/m"}', inside | JSON)
    wanted = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": OID, "size": len(MODEL)}]}
    batch = await ask(
        app, "POST", "/spaces/own/me/m.git/info/lfs/objects/batch", json.dumps(wanted).encode(),
        inside | {"content-type": "application/vnd.git-lfs+json", "accept": "application/vnd.git-lfs+json"},
    )  # fmt: skip
    assert batch.status == 403, batch.text


@pytest.mark.parametrize("path", ["/v1/stores?filename=m.onnx", "/api/2.0/mlflow-artifacts/artifacts/a/b/m.bin"])
async def test_a_quota_that_refuses_is_no_fault_of_the_service(
    path: str, monkeypatch: pytest.MonkeyPatch, app: Application
) -> None:
    recorded = list[RequestContext]()
    monkeypatch.setattr(app.recorder.metrics, "record", lambda context, seconds: recorded.append(context))
    inside = await bounded(app, stored_bytes=ROOM)
    assert (await ask(app, "PUT", f"/spaces/own{path}", MODEL, inside)).status == 403
    (context,) = recorded
    assert (context.cause, context.refused, context.problem) == (None, True, "quota-exceeded")


async def test_manifests_and_their_descriptors_are_counted(app: Application) -> None:
    headers = await bounded(app, stored_bytes=200_000)
    kind = {"content-type": "application/vnd.oci.image.manifest.v1+json"}
    subject = {"digest": f"sha256:{'0' * 64}"}
    statuses = []
    for number in range(10):
        about = {"schemaVersion": 2, "layers": [], "subject": subject, "annotations": {"a": f"{number}" * 30_000}}
        target = f"/spaces/own/v2/a/b/manifests/t{number}"
        put = await ask(app, "PUT", target, json.dumps(about).encode(), headers | kind)
        statuses.append(put.status)
    assert statuses == [201] * 3 + [403] * 7
    assert app.services.spaces is not None
    stores = await app.services.spaces.get("own")
    await stores.quotas.refresh()
    assert 180_000 < stores.quotas.used.stored_bytes < 200_000
    for number in range(3):
        assert (await ask(app, "DELETE", f"/spaces/own/v2/a/b/manifests/t{number}", headers=headers)).status == 202


ERRORS: Final[Mapping[str, Callable[[Asked], bool]]] = {
    "/v2/": lambda answer: json.loads(answer.body)["errors"][0]["code"] == "DENIED",
    "/api/2.0/mlflow-artifacts/": lambda answer: json.loads(answer.body)["error_code"] == "PERMISSION_DENIED",
    "/api/xet/": lambda answer: "Quota exceeded" in answer.headers["x-error-message"],
    "/api/lfs-": lambda answer: "Quota exceeded" in answer.text,
    "/api/": lambda answer: "Quota exceeded" in answer.headers["x-error-message"],
    "/v1/": lambda answer: json.loads(answer.body)["type"] == "/problems/quota-exceeded",
    "/": lambda answer: "Quota exceeded" in json.loads(answer.body)["message"],
}
"""For each protocol, the beginning of its paths, and a check that an answer has the form of its refusals."""


async def test_no_client_of_any_protocol_repeats_what_a_full_space_refuses() -> None:
    """Every call that may write: clients repeat requests with status 408, 429 and 5xx, and hang for minutes."""
    async with closed_service(webhook_allow=(HOOK,), webhook_networks=("127.0.0.0/8",)) as app:
        assert app.services.spaces is not None
        inside = bearer(await token_for(app, *EVERYTHING))
        things = await Filling(app, "own", inside).fill("mine", f"{HOOK}events")
        await app.services.spaces.create("own", Quota(stored_bytes=1, stores=1))
        refusing = set[str]()
        writing = [call for call in CALLS if call.route and call.method not in {"GET", "HEAD", "OPTIONS"}]
        for call in sorted(writing, key=lambda call: RULES[call.route].scope is Scope.DELETE):
            method, target, body, headers = call.filled(things, "/spaces/own")
            got = await ask(app, method, f"/spaces/own{target}", body, headers | inside)
            assert got.status in {*range(200, 500)} - {408, 429}, (call.route, got.text)
            if "Quota exceeded: the space" in got.text:
                protocol = next(beginning for beginning in ERRORS if target.startswith(beginning))
                assert (got.status, ERRORS[protocol](got)) == (403, True), (call.route, got)
                refusing.add(protocol)
        assert refusing == set(ERRORS)


async def _after_a_second(app: Application, *asked: Any) -> Asked:
    """Return the answer to a request that arrives after usage was read again."""
    assert app.services.spaces is not None
    await (await app.services.spaces.get("own")).quotas.refresh()
    return await ask(app, *asked)


async def _by_xet(app: Application, base: str, inside: dict[str, str]) -> list[Asked]:
    told = await _after_a_second(app, "GET", f"{base}/api/models/me/m/xet-write-token/main", b"", inside)
    cas = json.loads(told.body)["casUrl"].removeprefix("http://localhost")
    chunks = [LARGE[at : at + 100_000] for at in range(0, len(LARGE), 100_000)]
    hash, xorb = xorb_of(*chunks)
    shard = shard_of((LARGE, [(hash, len(LARGE), 0, len(chunks))]))
    return [
        await _after_a_second(app, "POST", f"{cas}/v1/xorbs/default/{hash}", xorb, inside),
        await _after_a_second(app, "POST", f"{cas}/v1/shards", shard, inside),
        await _named(app, base, inside),
    ]


async def _by_parts(app: Application, base: str, inside: dict[str, str]) -> list[Asked]:
    wanted = {"oid": sha256(LARGE).hexdigest(), "size": len(LARGE)}
    batch = {"operation": "upload", "transfers": ["multipart"], "objects": [wanted]}
    planned = await _after_a_second(
        app, "POST", f"{base}/me/m.git/info/lfs/objects/batch", json.dumps(batch).encode(), inside | JSON
    )
    action = json.loads(planned.body)["objects"][0]["actions"]["upload"]
    answers, size, parts = [planned], int(action["header"].pop("chunk_size")), []
    for number, url in action["header"].items():
        start = (int(number) - 1) * size
        answers.append(
            await _after_a_second(app, "PUT", url.removeprefix("http://localhost"), LARGE[start : start + size])
        )
        parts.append({"partNumber": int(number), "etag": answers[-1].headers["etag"]})
    joined = action["href"].removeprefix("http://localhost")
    answers.append(await _after_a_second(app, "POST", joined, json.dumps({"parts": parts}).encode(), JSON))
    return [*answers, await _named(app, base, inside)]


async def _by_artifacts(app: Application, base: str, inside: dict[str, str]) -> list[Asked]:
    at = f"{base}/api/2.0/mlflow-artifacts"
    begun = await _after_a_second(
        app, "POST", f"{at}/mpu/create/e/r", b'{"path": "m.onnx", "num_parts": 2}', inside | JSON
    )
    told, answers, parts = json.loads(begun.body), [begun], []
    for each, data in zip(told["credentials"], (LARGE[:500_000], LARGE[500_000:]), strict=True):
        answers.append(
            await _after_a_second(app, "PUT", each["url"].removeprefix("http://localhost"), data, each["headers"])
        )
        parts.append({"part_number": each["part_number"], "etag": answers[-1].headers["etag"]})
    done = {"path": "m.onnx", "upload_id": told["upload_id"], "parts": parts}
    return [
        *answers,
        await _after_a_second(app, "POST", f"{at}/mpu/complete/e/r", json.dumps(done).encode(), inside | JSON),
    ]


async def _by_blob(app: Application, base: str, inside: dict[str, str]) -> list[Asked]:
    begun = await _after_a_second(app, "POST", f"{base}/v2/m/blobs/uploads/", b"", inside)
    at = begun.headers["location"].removeprefix("http://localhost")
    answers = [begun, await _after_a_second(app, "PATCH", at, LARGE[:500_000], inside)]
    return [
        *answers,
        await _after_a_second(app, "PUT", f"{at}?digest=sha256:{sha256(LARGE).hexdigest()}", LARGE[500_000:], inside),
    ]


async def _by_joining(app: Application, base: str, inside: dict[str, str]) -> list[Asked]:
    answers, tus = list[Asked](), inside | {"tus-resumable": "1.0.0"}
    part = tus | {"upload-concat": "partial", "content-type": "application/offset+octet-stream"}
    for data in (LARGE[:500_000], LARGE[500_000:]):
        answers.append(
            await _after_a_second(app, "POST", f"{base}/v1/uploads", data, part | {"upload-length": str(len(data))})
        )
    places = " ".join(answer.headers["location"] for answer in answers)
    return [
        *answers,
        await _after_a_second(app, "POST", f"{base}/v1/uploads", b"", tus | {"upload-concat": f"final;{places}"}),
    ]


async def _named(app: Application, base: str, inside: dict[str, str]) -> Asked:
    body = commit(header(), ("lfsFile", {"path": "m.onnx", "algo": "sha256", "oid": sha256(LARGE).hexdigest()}))
    return await _after_a_second(app, "POST", f"{base}/api/models/me/m/commit/main", body, inside | LINES)


@pytest.mark.parametrize("way", [_by_xet, _by_parts, _by_artifacts, _by_blob, _by_joining])
async def test_bytes_that_come_in_parts_need_room_once(
    way: Callable[[Application, str, dict[str, str]], Awaitable[list[Asked]]],
    app: Application,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lfs, "_PART_BYTES", 500_000)
    inside = await bounded(app, stored_bytes=len(LARGE) * 5 // 3)
    await _after_a_second(app, "POST", "/spaces/own/api/repos/create", b'{"name":"me/m"}', inside | JSON)
    answers = await way(app, "/spaces/own", inside)
    assert [answer.status for answer in answers if answer.status >= 300] == [], answers[-1].text
    assert app.services.spaces is not None
    room = (await app.services.spaces.get("own")).quotas
    await room.refresh()
    assert len(LARGE) <= room.used.stored_bytes <= len(LARGE) * 5 // 3


async def test_entries_are_counted_by_every_call() -> None:
    """Rows without bytes: a tag, a branch, a repository."""
    for first in range(8):  # in several spaces, as some calls remove things that others name
        async with closed_service(webhook_allow=(HOOK,), webhook_networks=("127.0.0.0/8",)) as app:
            caller = bearer(await token_for(app, *EVERYTHING))
            things = await Filling(app, "own", caller).fill("mine", HOOK)
            for call in WRITING[first::8]:
                method, target, body, headers = call.filled(things, "/spaces/own")
                await ask(app, method, f"/spaces/own{target}", body, {**headers, **caller})
                counted, there = await entries(app)
                assert counted == there > 0, call


SET_AGAIN: Final = ("/v1/tags/", "tag=", "/manifests/v2", "/manifests/taken", "/v1/webhooks/")
"""Parts of targets that set tags, where each call is an event, and of webhooks, which get a new secret."""


async def test_a_change_that_changes_nothing_leaves_no_entry_in_the_audit() -> None:
    """Every setting call is sent twice, like a retry, or a job that runs again."""
    calls = [call for call in WRITING if call.method in {"PUT", "PATCH"}]
    calls = [call for call in calls if not any(part in call.target for part in SET_AGAIN)]
    calls.append(Call("POST", "/v1/drafts/{word}"))
    limits = json.dumps({"quota_stores": 90, "quota_bytes": 1 << 30}).encode()
    calls += [Call(method, "/v1/spaces/own", lambda _: limits, JSON) for method in ("PUT", "PATCH")]
    settled = set[str]()
    async with closed_service(webhook_allow=(HOOK,), webhook_networks=("127.0.0.0/8",)) as app:
        caller = bearer(await token_for(app, *EVERYTHING, space=EVERY_SPACE))
        things = await Filling(app, "own", caller).fill("mine", HOOK)
        assert app.services.database is not None
        for call in calls:
            method, target, body, headers = call.filled(things, "/spaces/own")
            counts = list[int]()
            for _ in range(2):
                answer = await ask(app, method, f"/spaces/own{target}", body, {**headers, **caller})
                counts.append(await app.services.database.read(lambda tx: tx.all("SELECT count(*) FROM audit")[0][0]))
            if answer.status < 300:
                assert counts[0] == counts[1], call
                settled.add(call.route)
    assert {
        "PUT /v1/schemas/{name}", "PUT /v1/stores", "PATCH /v1/stores/{ref}", "PATCH /v1/spaces/{space}",
        "PUT /v1/spaces/{space}", "PUT /v2/{name:path}/manifests/{ref}", "POST /v1/drafts/{name:path}",
        "PUT /api/2.0/mlflow-artifacts/artifacts/{name:path}",
    } <= settled, settled  # fmt: skip


async def test_a_space_with_as_many_entries_as_it_may_have_gets_no_more() -> None:
    async with closed_service(space_quota_entries=4) as app:
        caller = bearer(await token_for(app, *EVERYTHING))

        async def done(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = JSON) -> int:
            return (await ask(app, method, f"/spaces/own{path}", body, {**headers, **caller})).status

        store = json.loads((await ask(app, "PUT", "/spaces/own/v1/stores?filename=f", b"f", caller)).body)["id"]
        tag = json.dumps({"store": store}).encode()
        repository = json.dumps({"name": "r", "organization": "a"}).encode()
        assert [await done("PUT", f"/v1/tags/t{n}", tag) for n in range(3)] == [201] * 3
        assert await done("POST", "/api/repos/create", repository) == 200
        more = [
            await done("PUT", "/v1/tags/t3", tag),
            await done("POST", "/api/repos/create", json.dumps({"name": "s", "organization": "a"}).encode()),
            await done("POST", "/api/models/a/r/branch/b", b"{}"),
            await done("PUT", "/api/2.0/mlflow-artifacts/artifacts/run/empty", b""),
            await done("PUT", "/v1/stores?filename=g&tag=t3", b"g", {}),
        ]
        assert more == [403] * 5
        assert await done("PUT", "/v1/tags/t0", tag) == 200, "it points there already"
        assert await done("DELETE", "/v1/tags/t0") == 204
        assert await done("PUT", "/v1/tags/t3", tag) == 201
        assert (await entries(app)) == (4, 4)

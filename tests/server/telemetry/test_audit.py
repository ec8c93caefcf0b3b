"""Audit lines: one for every change and every refusal, for all rows of the table of rules, without secrets."""

from __future__ import annotations

import json
import logging
import re
from base64 import b64encode
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import RULES
from tests.support.serve import ask, logs_to
from tests.support.stores import onnx

from protoslice.catalog.spaces import Quota
from protoslice.server.auth.permissions import EVERY_SPACE, Scope
from protoslice.server.context import RequestContext
from protoslice.server.telemetry.logs import AUDIT, Recorder
from protoslice.server.telemetry.metrics import Metrics
from protoslice.server.transport.run import fast_path

READING_POSTS = {
    "/v1/chunks/missing",
    "/v1/stores/{ref}/merge",
    "/v1/stores/{ref}/parts",
    "/v1/sign",
    "/v1/s3-keys",
    "/api/{kind}/{name:repository}/paths-info/{revision}",
    "/api/validate-yaml",
    "/{name:repository_of_kind}.git/info/lfs/objects/batch",
}


class Lines(logging.Handler):
    """The lines of the audit, which are removed when a test reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def take(self) -> list[dict[str, Any]]:
        """Return all lines since the last call."""
        texts, self.texts = self.texts, []
        return [json.loads(text) for text in texts]


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, kept = logging.getLogger(AUDIT), Lines()
    level = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    yield kept
    logger.removeHandler(kept)
    logger.setLevel(level)


SESSIONS = {"POST /session": 0, "DELETE /session": 1, "GET /session/callback": 1}
"""The lines of each row that any caller may call to sign in or out; POST gets no token here."""


def changing(row: str) -> bool:
    """Return True for a row that changes something, computed without `Rule.changes`."""
    method, _, template = row.partition(" ")
    return method not in {"GET", "OPTIONS"} and template not in READING_POSTS


def path_of(row: str) -> str:
    """Return a path that the row matches."""
    named = (
        row.partition(" ")[2]
        .replace("{name:repository}", "a/x")
        .replace("{kind}", "models")
        .replace("{name:owned}", "a/x")
    )
    return re.sub(r"{(\w+)(:path)?}", "x", named)


async def test_every_change_and_every_refusal_has_one_line_and_no_reading_has_any(lines: Lines) -> None:
    async with closed_service() as app:
        admin = await token_for(app, Scope.ADMIN, space=EVERY_SPACE)
        hidden, weak = await token_for(app, Scope.ADMIN, space="other"), await token_for(app, Scope.READ)
        wrong = list[str]()
        for row in sorted(RULES):
            method, path, scope = row.partition(" ")[0], f"/spaces/own{path_of(row)}", RULES[row].scope
            asked = scope is not None
            refused_weak = asked and (scope is not Scope.READ or RULES[row].everywhere)
            for who, token, expected in (
                ("admin", admin, ["change"] if changing(row) else []),
                ("nobody", None, ["refused"] if asked else []),
                ("stranger", hidden, ["refused"] if asked else []),
                ("reader", weak, ["refused"] if refused_weak else []),
            ):
                got = await ask(app, method, path, headers=bearer(token))
                found = lines.take()
                if row in SESSIONS:
                    wrong += [f"{who}: {row}: {found}"] if len(found) != SESSIONS[row] else []
                    continue
                said = ["refused" if line["outcome"] == "refused" else "change" for line in found]
                if said != expected or any((who == "nobody") is bool(line["principal"]) for line in found):
                    wrong.append(f"{who}: {row}: {got.status} {found}")
                told = got.headers["x-request-id"]
                assert all((line["request_id"], line["status"]) == (told, got.status) for line in found)
                assert all(line["route"] == row.partition(" ")[2] and line["space"] == "own" for line in found), found
        assert wrong == []


async def test_a_line_tells_who_did_what_on_what(lines: Lines) -> None:
    async with closed_service() as app:
        token = await token_for(app, Scope.WRITE, tags=("ci-*",))
        made = await ask(app, "PUT", "/spaces/own/v1/stores?tag=ci-1", onnx(10), bearer(token))
        [line] = lines.take()
        store = json.loads(made.body)["id"]
        assert (line["outcome"], line["status"], line["store"], line["tags"]) == ("done", 201, store, ["ci-1"])
        assert (line["principal"]["name"], line["client"]) == ("t", "192.0.2.1")
        assert line["principal"]["id"] in token
        body = json.dumps({"uploads": {"a": "x"}, "tags": ["prod"]}).encode()
        headers = bearer(token) | {"content-type": "application/json"}
        assert (await ask(app, "POST", "/spaces/own/v1/stores/assemble", body, headers)).status == 403
        [line] = lines.take()
        assert (line["outcome"], line["tags"]) == ("refused", ["prod"])


async def test_a_quota_refuses_by_the_name_of_its_problem(lines: Lines) -> None:
    async with closed_service() as app:
        assert app.services.spaces is not None
        await app.services.spaces.create("own", Quota(stored_bytes=10))
        token = await token_for(app, Scope.WRITE)
        assert (await ask(app, "PUT", "/spaces/own/v1/stores", onnx(9000), bearer(token))).status == 403
        assert (await ask(app, "PUT", "/spaces/own/v1/stores", b"", bearer(token))).status == 400
        told = [(line["outcome"], line["problem"], line["status"]) for line in lines.take()]
        assert told == [("refused", "quota-exceeded", 403), ("failed", "invalid-input", 400)]


async def test_no_secret_is_in_any_line(lines: Lines) -> None:
    async with closed_service() as app:
        token = await token_for(app, Scope.READ, Scope.WRITE)
        basic = b64encode(f"user:{token}".encode()).decode()
        begun = await ask(
            app, "POST", "/spaces/own/v1/uploads", b"", bearer(token) | {"tus-resumable": "1.0.0", "upload-length": "5"}
        )
        upload = begun.headers["location"].rpartition("/")[2]
        signature = "psl-expires=1&psl-token=0123456789&psl-signature=" + "ab" * 32
        for method, path, headers in (
            ("DELETE", "/spaces/own/v1/uploads/" + upload, bearer(token)),
            ("DELETE", "/spaces/own/v1/stores/x", {"authorization": f"Basic {basic}"}),
            ("DELETE", "/spaces/own/v1/stores/x", bearer(token[:-1] + "x")),
            ("GET", f"/spaces/own/v1/stores?{signature}", {}),
            ("PUT", f"/spaces/own/api/2.0/mlflow-artifacts/parts/{'c0ffee42' * 4}/a/b?{signature}", {}),
        ):
            await ask(app, method, path, headers={"tus-resumable": "1.0.0", **headers})
        assert len(lines.texts) == 6
        for secret in (token[4:-1], basic, upload, "psl-", "ab" * 32, "c0ffee42" * 4):
            assert not any(secret in text for text in lines.texts), secret
        assert f"/v1/uploads/{upload[:10]}..." in lines.texts[1]


async def test_the_early_path_writes_none_for_what_it_lets_in_and_leaves_refusals_to_the_ordinary_way(
    lines: Lines, tmp_path: Path
) -> None:
    async with closed_service(storage=tmp_path.as_uri(), trust_seconds=60) as app:
        writer, reader = await token_for(app, Scope.WRITE), await token_for(app, Scope.READ)
        made = await ask(app, "PUT", "/spaces/own/v1/stores?filename=m", onnx(10), bearer(writer))
        path = f"/spaces/own/v1/stores/{json.loads(made.body)['id']}/files/m"
        for token in (reader, writer):
            await ask(app, "GET", path, headers=bearer(token))
        assert [line["status"] for line in lines.take()] == [201, 403]
        early = fast_path(app)
        assert early is not None
        given = [
            early(path.encode(), [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())], None, [])
            for token in (reader, writer)
        ]
        assert [answer is None for answer in given] == [False, True]
        assert lines.take() == []


@pytest.mark.parametrize(("status", "outcome"), [(201, "done"), (404, "failed"), (499, "unknown"), (500, "unknown")])
def test_a_change_whose_answer_was_lost_may_have_been_made(lines: Lines, status: int, outcome: str) -> None:
    context = RequestContext(method="DELETE", path="/v1/stores/x")
    context.changes, context.status = True, status
    Recorder(Metrics()).record(context)
    assert [line["outcome"] for line in lines.take()] == [outcome]


def test_lines_are_json_in_every_form_and_at_every_level() -> None:
    out = StringIO()
    with logs_to(out, "text", "error") as flush:
        context = RequestContext(method="DELETE", path='/v1/stores/\n"')
        context.changes = True
        Recorder(Metrics()).record(context)
        flush()
        assert json.loads(out.getvalue())["path"] == '/v1/stores/\n"'

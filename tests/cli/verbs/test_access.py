"""Tokens on the command line, against a service that asks for tokens: what a transcript does not show."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest

from protoslice.client import Client
from protoslice.client.http.connection import Connection, ServiceAnswer


@pytest.fixture(scope="module")
def team(closed: Any) -> dict[str, str]:
    """Environment of an admin who works in the space `team`."""
    with httpx.Client(base_url=closed.url, headers={"authorization": f"Bearer {closed.admin}"}) as http:
        http.put("/v1/spaces/team").raise_for_status()
    return {"PROTOSLICE_URL": f"{closed.url}/spaces/team", "PROTOSLICE_TOKEN": closed.admin}


def test_lists_of_tokens_show_when_each_was_created(call: Any, team: dict[str, str]) -> None:
    made = json.loads(call("token", "create", "dated", "--scope", "read", "--json", **team).stdout)
    head, *rows = call("token", "ls", **team).stdout.splitlines()
    (row,) = [each for each in rows if made["id"] in each]
    assert head.split()[-3:] == ["created", "used", "ends"]
    assert made["created"][:16].replace("T", " ") in row


def test_part_of_a_store_is_signed(closed: Any, team: dict[str, str]) -> None:
    with Client(team["PROTOSLICE_URL"], token=closed.admin) as client:
        client.push(b"\x0a\x22\x0a\x20" + bytes(b"a" * 32), type="tensorflow.GraphDef", tags=["signed:1"])
        part = client.sign("signed:1", "merge", [("path", "node[0].name")])
    assert httpx.get(part).content == b"a" * 32


@pytest.mark.parametrize("size", [6, 9 << 20, 65 << 20])
@pytest.mark.parametrize("base", [[], ["--base", "0123456789abcdef"]])
def test_a_token_that_only_writes_pushes(
    call: Any, team: dict[str, str], tmp_path: Path, size: int, base: list[str]
) -> None:
    robot = team | {"PROTOSLICE_TOKEN": call("token", "create", "w", "--scope", "write", **team).stdout.strip()}
    (tmp_path / "m.bin").write_bytes(bytes(range(6)) * (size // 6))
    pushed = json.loads(call("push", tmp_path / "m.bin", "--tag", "w:2", "--json", *base, **robot).stdout)
    assert (pushed["sent"], pushed["copied"]) == (size // 6 * 6, 0)
    call("pull", "w:2", tmp_path / "again.bin", **team)
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "m.bin").read_bytes()
    refused = call("rm", "w:2", code=6, **robot).stderr
    assert refused.index("delete") < refused.index("read")


def test_s3_keys_are_printed_in_every_form(call: Any, team: dict[str, str]) -> None:
    reader = team | {"PROTOSLICE_TOKEN": call("token", "create", "s3", "--scope", "read", **team).stdout.strip()}
    keys = json.loads(call("token", "s3", "--json", **reader).stdout)
    assert call("token", "s3", **reader).stdout.splitlines() == [
        f"export AWS_ACCESS_KEY_ID={keys['access_key_id']}",
        f"export AWS_SECRET_ACCESS_KEY={keys['secret_access_key']}",
    ]
    assert json.loads(call("token", "s3", "--credential-process", **reader).stdout) == {
        "Version": 1,
        "AccessKeyId": keys["access_key_id"],
        "SecretAccessKey": keys["secret_access_key"],
    }


HOSTILE = {"access_key_id": "$(id) `id`", "secret_access_key": "a'; id", "session_token": None, "expires": None}


def test_s3_keys_of_a_hostile_service_are_quoted_for_the_shell(
    call: Any, team: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "call", lambda *_, **__: ServiceAnswer(200, {}, json.dumps(HOSTILE).encode()))
    printed = call("token", "s3", **team).stdout
    assert [shlex.split(line)[1:] for line in printed.splitlines()] == [
        ["AWS_ACCESS_KEY_ID=$(id) `id`"],
        ["AWS_SECRET_ACCESS_KEY=a'; id"],
    ]


@pytest.mark.parametrize("answer", [[], {"access_key_id": 1}, "keys"])
def test_s3_keys_of_another_form_are_refused(
    call: Any, team: dict[str, str], monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(Connection, "call", lambda *_, **__: ServiceAnswer(200, {}, json.dumps(answer).encode()))
    assert "no valid S3 keys" in call("token", "s3", code=3, **team).stderr

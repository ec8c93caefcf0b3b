"""Tokens and spaces on the command line, against a service that asks for tokens."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.serve import service_process
from tests.support.stores import onnx

from protoslice.client import Client


@dataclass(frozen=True)
class Site:
    """A service with a space `team`: its URL, its storage, its admin token."""

    url: str
    storage: Path
    admin: str

    @property
    def team(self) -> dict[str, str]:
        """Environment of an admin who works in the space."""
        return {"PROTOSLICE_URL": f"{self.url}/spaces/team", "PROTOSLICE_TOKEN": self.admin}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    settings = {"PROTOSLICE_STORAGE": folder.as_uri(), "PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process(settings=settings | {"PROTOSLICE_AUTH": "tokens"}) as service:
        assert service.running.stdout is not None
        yield Site(service.url, folder, service.running.stdout.readline().strip().rpartition(" ")[2])


@pytest.fixture(autouse=True)
def space(call: Any, site: Site) -> None:
    """The space `team`."""
    made = call("space", "create", "team", url=site.url, PROTOSLICE_TOKEN=site.admin)
    assert made.stdout == f"{site.url}/spaces/team\n"


def test_a_team_gets_a_space_and_a_robot_a_token(call: Any, site: Site, tmp_path: Path) -> None:
    listed = call("space", "ls", url=site.url, PROTOSLICE_TOKEN=site.admin).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["space", "default", "team"]
    made = call("token", "create", "ci", "--scope", "read", "--scope", "write", "--tag", "ci-*", **site.team)
    token = made.stdout.strip()
    assert token.startswith("psl_")
    assert token not in made.stderr
    robot = site.team | {"PROTOSLICE_TOKEN": token}
    (tmp_path / "m.onnx").write_bytes(onnx(1000))
    call("push", tmp_path / "m.onnx", "--tag", "ci-1", **robot)
    assert "ci-1" in call("ls", **robot).stdout
    refused = call("tag", "prod", "@ci-1", code=6, **robot)
    assert "lacks the scope write for the tags prod" in refused.stderr
    assert "No space 'default'" in call("ls", "--url", site.url, code=4, **robot).stderr


def test_tokens_are_listed_and_revoked(call: Any, site: Site) -> None:
    made = json.loads(call("token", "create", "x", "--scope", "read", "--expires", "90d", "--json", **site.team).stdout)
    (shown,) = [
        each for each in json.loads(call("token", "ls", "--json", **site.team).stdout) if each["id"] == made["id"]
    ]
    assert shown == made | {"token": ""}
    assert made["expires"] > made["created"]
    assert made["id"] in call("token", "ls", **site.team).stdout
    call("token", "revoke", made["id"], **site.team)
    assert made["id"] not in call("token", "ls", **site.team).stdout


def test_a_rotated_token_has_the_grant_of_the_old_one(call: Any, site: Site) -> None:
    options = ["--scope", "read", "--scope", "write", "--tag", "ci-*", "--expires", "90d", "--json"]
    old = json.loads(call("token", "create", "robot", *options, **site.team).stdout)
    both = json.loads(call("token", "rotate", old["id"], "--keep", "--json", **site.team).stdout)
    call("ls", **site.team | {"PROTOSLICE_TOKEN": old["token"]})
    new = call("token", "rotate", old["id"], **site.team).stdout.strip()
    call("ls", **site.team | {"PROTOSLICE_TOKEN": new})
    call("ls", **site.team | {"PROTOSLICE_TOKEN": both["token"]})
    listed = json.loads(call("token", "ls", "--json", **site.team).stdout)
    robots = [each for each in listed if each["name"] == "robot"]
    assert old["id"] not in [each["id"] for each in robots]
    assert [(each["scopes"], each["tags"]) for each in robots] == [(["read", "write"], ["ci-*"])] * 2
    for each in robots:
        assert (datetime.fromisoformat(each["expires"]) - datetime.fromisoformat(each["created"])).days in {89, 90}
    assert "token ls" in call("token", "rotate", old["id"], code=4, **site.team).stderr


def test_lists_of_tokens_show_when_each_was_created(call: Any, site: Site) -> None:
    made = json.loads(call("token", "create", "dated", "--scope", "read", "--json", **site.team).stdout)
    head, *rows = call("token", "ls", **site.team).stdout.splitlines()
    (row,) = [each for each in rows if made["id"] in each]
    assert head.split()[-3:] == ["created", "used", "ends"]
    assert made["created"][:16].replace("T", " ") in row


def test_the_log_names_the_user_who_wrote_to_the_storage(call: Any, site: Site) -> None:
    call("token", "create", "local", "--storage", site.storage.as_uri(), "--scope", "admin", "--every-space")
    log = call("log", "--every-space", "--json", url=site.url, PROTOSLICE_TOKEN=site.admin).stdout
    (change,) = [each for each in json.loads(log) if each["detail"].get("name") == "local"]
    assert (change["who"], change["who_id"]) == (getpass.getuser(), "local")


def test_without_a_token_the_command_line_says_where_one_goes(call: Any, site: Site) -> None:
    assert "set PROTOSLICE_TOKEN" in call("ls", "--url", site.url, code=6).stderr


def test_a_token_may_lie_in_a_file(call: Any, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{site.admin}\n")
    given = {"PROTOSLICE_URL": f"{site.url}/spaces/team", "PROTOSLICE_TOKEN_FILE": str(file)}
    call("ls", **given)
    file.write_bytes(b"\xff")
    assert "PROTOSLICE_TOKEN_FILE" in call("ls", code=2, **given).stderr
    assert "PROTOSLICE_TOKEN_FILE" in call("ls", code=2, **given | {"PROTOSLICE_TOKEN_FILE": "/none"}).stderr


def test_whoever_reaches_the_storage_makes_an_admin_token_anew(call: Any, site: Site) -> None:
    options = ["--storage", site.storage.as_uri(), "--scope", "admin"]
    token = call("token", "create", "again", *options, "--every-space").stdout.strip()
    call("ls", url=site.url, PROTOSLICE_TOKEN=token)
    assert "--every-space" in call("token", "create", "again", *options, code=2).stderr
    wrong = call("token", "create", "x", *options, "--scope", "all", "--every-space", code=2)
    assert "use read, write" in wrong.stderr


@pytest.mark.parametrize("text", ["", "90", "d", "1w", "-1d", "1.5h"])
def test_times_are_numbers_with_a_unit(call: Any, site: Site, text: str) -> None:
    assert (
        "Invalid time"
        in call("token", "create", "x", "--scope", "read", f"--expires={text}", code=2, **site.team).stderr
    )


def test_a_signed_url_needs_no_token_and_opens_nothing_else(call: Any, site: Site, tmp_path: Path) -> None:
    data = onnx(2000)
    (tmp_path / "m ü.onnx").write_bytes(data)
    call("push", tmp_path / "m ü.onnx", "--tag", "signed:1", **site.team)
    url = call("sign", "@signed:1", "files/m ü.onnx", "--for", "10m", **site.team).stdout.strip()
    assert url.startswith(f"{site.url}/spaces/team/v1/stores/")
    assert httpx.get(url).content == data
    assert httpx.get(url, headers={"range": "bytes=10-19"}).content == data[10:20]
    facts = call("sign", "@signed:1", **site.team).stdout.strip()
    assert httpx.get(facts).json()["tags"] == ["signed:1"]
    assert httpx.get(url.replace("files", "merge")).status_code in {401, 403, 404}
    assert httpx.get(url.partition("?")[0]).status_code in {401, 404}
    assert "Invalid time" in call("sign", "@signed:1", "--for", "soon", code=2, **site.team).stderr
    with Client(f"{site.url}/spaces/team", token=site.admin) as client:
        part = client.sign("signed:1", "merge", [("path", "graph.initializer[0].name")])
        assert httpx.get(part).content == b"weight-0"


def test_a_quota_is_set_and_shown(call: Any, site: Site, tmp_path: Path) -> None:
    admin = {"url": site.url, "PROTOSLICE_TOKEN": site.admin}
    call("space", "set", "bounded", "--bytes", "5MB", "--stores", "1", **admin)
    inside = {"PROTOSLICE_URL": f"{site.url}/spaces/bounded", "PROTOSLICE_TOKEN": site.admin}
    for name, size, code in (("small", 50_000, 0), ("other", 50_000, 6), ("large", 6_000_000, 6)):
        file = tmp_path / name
        file.write_bytes(name.encode() * (size // 5))
        output = call("push", str(file), code=code, **inside)
        assert code == 0 or "Quota exceeded" in output.stderr
    rows = {each["name"]: each for each in json.loads(call("space", "ls", "--json", **admin).stdout)}
    bounded = rows["bounded"]
    assert (bounded["stores"], bounded["quota_stores"], bounded["quota_bytes"]) == (1, 1, 5_000_000)
    assert 50_000 <= bounded["stored_bytes"] < 100_000
    assert rows["default"]["quota_bytes"] == 0
    (line,) = [each for each in call("space", "ls", **admin).stdout.splitlines() if each.startswith("bounded")]
    assert " of 4.77 MiB" in line
    assert "1 of 1" in line
    shown = call("space", "set", "bounded", "--requests", "7", **admin).stdout
    assert [line.split(maxsplit=1)[1] for line in shown.splitlines() if line.startswith(("bytes", "stores"))] == [
        "4.77 MiB", "1"
    ]  # fmt: skip
    call("space", "set", "bounded", "--stores", "2", **admin)
    found = json.loads(call("space", "set", "bounded", "--json", **admin).stdout)
    assert (found["quota_bytes"], found["quota_stores"], found["quota_requests"]) == (5_000_000, 2, 7)
    found = json.loads(call("space", "set", "bounded", "--requests", "8", "--reset", "--json", **admin).stdout)
    assert (found["quota_bytes"], found["quota_stores"], found["quota_requests"]) == (0, 0, 8)
    call("push", str(tmp_path / "other"), **inside)
    assert "Invalid size" in call("space", "set", "bounded", "--bytes", "much", code=2, **admin).stderr


def test_log_shows_who_changed_what(call: Any, site: Site, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx(1000))
    call("push", tmp_path / "m.onnx", "--tag", "logged:1", **site.team)
    lines = call("log", "logged:1", **site.team).stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[4:6] == ["tag.set", "logged:1"]
    (change,) = json.loads(call("log", "--what", "tag.set", "--limit", "1", "--json", **site.team).stdout)
    assert (change["what"], change["subject"]) == ("tag.set", "logged:1")
    assert f"{change['who']} ({change['who_id']})" == " ".join(lines[1].split()[2:4])
    assert change["who_id"]
    store = call("ls", "logged:1", **site.team).stdout.splitlines()[1].split()[0]
    assert "store.created" in call("log", store, **site.team).stdout, "the id may be short"
    call("token", "create", "x", "--scope", "read", "--scope", "write", **site.team)
    assert 'scopes=["read", "write"]' in call("log", "--what", "token.created", **site.team).stdout


def test_a_space_is_removed_with_its_stores_and_restored(call: Any, site: Site) -> None:
    admin = {"PROTOSLICE_TOKEN": site.admin, "url": site.url}
    call("space", "create", "brief", **admin)
    assert call("space", "rm", "brief", **admin).stdout == "Removed space brief.\n"
    call("space", "create", "going", **admin)
    with Client(f"{site.url}/spaces/going", token=site.admin) as client:
        store = client.push(b"\x0a\x02\x0a\x00", type="tensorflow.GraphDef", tags=["m:1"]).store.id
    full = call("space", "rm", "going", code=7, **admin).stderr
    assert "has 1 store, 1 name, and" in full
    assert "--with-stores" in full
    asked = call("space", "rm", "going", "--with-stores", code=2, **admin).stderr
    assert asked == (
        "protoslice: Space going would be removed with 1 store (4 B) and all names: pass --yes to remove it\n"
    )
    with Client(f"{site.url}/spaces/going", token=site.admin) as client:
        assert client.store("m:1").id == store
    assert "No space 'none'" in call("space", "rm", "none", "--with-stores", code=4, **admin).stderr
    done = call("space", "rm", "going", "--with-stores", "--yes", **admin)
    undo = done.stderr.partition(": protoslice space ")[2]
    undo = ["space", *undo.replace("URI", str(site.storage)).split()]
    call("ls", "--url", f"{site.url}/spaces/going", code=4, **admin)
    assert "was removed" in call("space", "create", "going", code=7, **admin).stderr
    call(*undo, **admin)
    with Client(f"{site.url}/spaces/going", token=site.admin) as client:
        assert client.store("m:1").id == store
    call(*undo, code=4, **admin)
    assert "cannot be removed" in call("space", "rm", "default", code=7, **admin).stderr


@pytest.mark.parametrize("size", [6, 9 << 20, 65 << 20])
@pytest.mark.parametrize("base", [[], ["--base", "0123456789abcdef"]])
def test_a_token_that_only_writes_pushes(call: Any, site: Site, tmp_path: Path, size: int, base: list[str]) -> None:
    robot = site.team | {
        "PROTOSLICE_TOKEN": call("token", "create", "w", "--scope", "write", **site.team).stdout.strip()
    }
    (tmp_path / "m.bin").write_bytes(bytes(range(6)) * (size // 6))
    pushed = json.loads(call("push", tmp_path / "m.bin", "--tag", "w:2", "--json", *base, **robot).stdout)
    assert (pushed["sent"], pushed["copied"]) == (size // 6 * 6, 0)
    call("pull", "w:2", tmp_path / "again.bin", **site.team)
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "m.bin").read_bytes()
    refused = call("rm", "w:2", code=6, **robot).stderr
    assert refused.index("delete") < refused.index("read")

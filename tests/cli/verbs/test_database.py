"""The verbs `database upgrade` and `database access`, and refusals of all verbs that take a storage.

The verbs `serve` and `config`: printed paths and addresses, plug-ins, a file of issuers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from tests.support.postgres import TestServer
from tests.support.serve import service_process

from protoslice import storage
from protoslice.cli import app as program
from protoslice.database import connect, schema, upgrade
from protoslice.errors import Unsupported
from protoslice.server.auth.tokens import new_token
from protoslice.server.services import ServerState
from protoslice.server.settings import Settings
from protoslice.server.transport.run import tell_places
from protoslice.storage import MemoryStorage, ObjectContent, ObjectKey
from protoslice.storage.interface import Abilities


def test_upgrade_creates_tables_once(call: Any, postgres: TestServer) -> None:
    url, version = postgres.new_database(), len(schema.migrations("sqlite"))
    first = call("database", "upgrade", "--json", PROTOSLICE_DATABASE=url)
    assert json.loads(first.stdout) == {"before": 0, "after": version}
    again = call("database", "upgrade", "--database", url)
    assert again.stdout == f"The database has schema {version} already\n"


class Bucket(MemoryStorage):
    """A storage that counts its calls."""

    asked = 0

    @property
    def abilities(self) -> Abilities:
        return Abilities()

    async def get(self, key: ObjectKey) -> ObjectContent:
        Bucket.asked += 1
        return await super().get(key)


@pytest.fixture
def bucket() -> Iterator[str]:
    """Return the URI of a bucket that must not be called."""
    storage.register("counted", lambda uri, options: Bucket())
    Bucket.asked = 0
    yield "counted://bucket"
    storage.unregister("counted")


def verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All verbs by name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


VERBS = {
    name: command
    for name, command in verbs(typer.main.get_command(program.app))
    if any("--storage" in each.opts or each.name == "uri" for each in command.params)
}
"""All verbs that take a storage."""
TRIES = "storage check"
"""A verb that takes any storage, including one that belongs to no service."""
FILLS = {"serve", "database upgrade", "restore-backup"}
"""The verbs that may begin a storage."""


def words(name: str, uri: str, target: Path) -> list[str]:
    """Return the words of a verb over the storage at `uri`."""
    given = {"target": str(target), "name": "x", "token": new_token().text, "method": "GET", "path": "/v1/stores"}
    given["store"] = "0" * 64
    line, options = name.split(), ["--storage", uri]
    for each in VERBS[name].params:
        if each.name == "uri":
            options = [uri]
        elif each.param_type_name == "argument" and each.required:
            line.append(given[each.name])
        elif each.required:
            options += [each.opts[0], {"scope": "read"}[each.name]]
        elif each.name == "every_space":
            options.append(each.opts[0])
    return [*line, *options]


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {TRIES, "serve"}))
def test_a_bucket_without_a_database_is_refused_before_it_is_asked(
    call: Any, bucket: str, tmp_path: Path, verb: str
) -> None:
    said = call(*words(verb, bucket, tmp_path), code=3).stderr
    assert "A storage at counted:// needs a database: set PROTOSLICE_DATABASE to postgresql://" in said
    assert Bucket.asked == 0


def test_service_with_a_bucket_without_a_database_is_refused_before_it_is_asked(bucket: str) -> None:
    with pytest.raises(Unsupported, match="needs a database"):
        asyncio.run(ServerState(Settings(storage=bucket)).open())
    assert Bucket.asked == 0


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - FILLS - {TRIES}))
def test_a_mistyped_folder_is_not_created(call: Any, tmp_path: Path, verb: str) -> None:
    said = call(*words(verb, (tmp_path / "typo" / "s").as_uri(), tmp_path / "backups"), code=4).stderr
    mended = "check PROTOSLICE_STORAGE or --storage"
    assert said == f"protoslice: The storage {tmp_path / 'typo' / 's'} contains no stores: {mended}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_mistyped_backup_is_not_created(call: Any, tmp_path: Path) -> None:
    for options in [], ["--list"]:
        said = call(*words("restore-backup", (tmp_path / "s").as_uri(), tmp_path / "typo"), *options, code=4).stderr
        assert said == "protoslice: No snapshots found: pass the URI of a backup, or of a storage with snapshots\n"
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {TRIES, "serve"}))
def test_a_storage_of_an_earlier_layout_is_refused_and_left_alone(call: Any, tmp_path: Path, verb: str) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "protoslice.json").write_text('{"layout":1}')
    (tmp_path / "backups").mkdir()
    said = call(*words(verb, folder.as_uri(), tmp_path / "backups"), code=3).stderr
    assert "This storage was written by another version of Protoslice (layout 1, not" in said
    assert [each.name for each in folder.iterdir()] == ["protoslice.json"]


def test_upgrade_refuses_an_empty_database_and_that_of_another_storage(call: Any, tmp_path: Path) -> None:
    async def made(name: str) -> str:
        database = connect(f"sqlite:///{tmp_path / name}", "memory://")
        await upgrade(database)
        await database.close()
        return f"sqlite:///{tmp_path / name}"

    other, folder = asyncio.run(made("other.sqlite")), tmp_path / "s"
    folder.mkdir()
    (folder / "protoslice.json").write_text('{"layout":4,"catalogue":"aa"}')
    said = call("database", "upgrade", "--storage", folder.as_uri(), "--database", other, code=3).stderr
    assert "This storage belongs to another database" in said
    said = call("database", "upgrade", "--storage", folder.as_uri(), code=3).stderr
    assert "The database is empty, but the storage is in use" in said
    assert [each.name for each in folder.iterdir()] == ["protoslice.json"]


def test_mode_is_changed_by_a_command(call: Any, tmp_path: Path) -> None:
    storage = tmp_path.as_uri()
    room = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", storage, settings=room) as service:
        assert httpx.put(f"{service.url}/v1/stores", content=b"\x0a\x01a").status_code == 201
        refused = call("database", "access", "tokens", "--storage", storage, code=7).stderr
        assert f"process {service.running.pid} on " in refused
    other = service_process("--storage", storage, settings={"PROTOSLICE_AUTH": "tokens"})
    with pytest.raises(RuntimeError, match="protoslice database access tokens"), other:
        pass
    assert json.loads(call("database", "access", "--storage", storage, "--json").stdout) == {"access": "open"}
    assert "use open or tokens" in call("database", "access", "closed", "--storage", storage, code=2).stderr
    assert call("database", "access", "tokens", "--storage", storage).stdout == "access: tokens\n"
    with service_process("--storage", storage, settings=room) as service:
        assert httpx.get(f"{service.url}/v1/stores").status_code == 401
        service.running.terminate()
        assert service.running.stdout is not None
        said = service.running.stdout.read().splitlines()
        assert said[0].startswith("Admin token")
        assert said[-1] == "access: tokens"
        assert '"access: tokens"' in service.log.read_text()
    other = service_process("--storage", storage, settings={"PROTOSLICE_AUTH": "open"})
    with pytest.raises(RuntimeError, match="protoslice database access open"), other:
        pass


FILE = """
[[issuer]]
url = "https://ci.example"
audience = "models"
[[issuer.allow]]
claims = { repository = ["a/*", "b/*"], ref = "main" }
space = "team"
scopes = ["write", "read"]
tags = ["ci-*"]
"""


def test_config_tells_whom_issuers_let_in(call: Any, tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(FILE)
    lines = call("config", PROTOSLICE_ISSUERS=str(tmp_path / "issuers.toml")).stdout.splitlines()
    assert lines[-2:] == [
        "# https://ci.example: JWTs for the audience models, signed with RS256 or ES256",
        "#   tokens where repository is a/* or b/* and ref is main get read write in the space team, on the tags ci-*",
    ]


def test_config_tells_mistakes_in_issuers(call: Any, tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(FILE.replace("write", "wriet"))
    done = call("config", code=2, PROTOSLICE_ISSUERS=str(tmp_path / "issuers.toml"))
    assert "issuer[0].allow[0].scopes: 'wriet' is not one of" in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_says_where_page_and_data_are(tmp_path: Path, workers: str) -> None:
    settings = {"PROTOSLICE_STORAGE": (tmp_path / "data").as_uri(), "PROTOSLICE_WORKERS": workers}
    with service_process(settings=settings) as service:
        assert service.running.stdout is not None
        page, data, access = (service.running.stdout.readline() for _ in range(3))
        assert page.startswith("page: ")
        assert f"{service.url}/ " in page
        assert ("not built" in page) == ("make web" in httpx.get(service.url).text)
        assert "--port" in page
        assert data == f"data: {tmp_path / 'data'} (change with --storage, or PROTOSLICE_STORAGE)\n"
        assert access == "access: open to everyone who reaches 127.0.0.1\n"
        service.running.terminate()
        service.running.wait(30)
        assert access.strip() in service.log.read_text()


def test_serve_shows_no_credentials_of_its_storage(capsys: pytest.CaptureFixture[str]) -> None:
    tell_places(Settings(storage="s3://user:secret@bucket/x"), "http://127.0.0.1:1", closed=False)
    said = capsys.readouterr().out
    assert "secret" not in said
    assert "data: s3://bucket/x (" in said


def test_serve_loads_the_plug_ins_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "my_plugin.py").write_text(
        "import protoslice.storage as s\ns.register('mine', lambda uri, options: s.MemoryStorage())\n"
    )
    settings = {"PYTHONPATH": str(tmp_path), "PROTOSLICE_PLUGINS": "my_plugin", "PROTOSLICE_STORAGE": "mine://host/x"}
    with service_process(settings=settings) as service:
        made = httpx.put(f"{service.url}/v1/stores?filename=m.pb", content=b"\x0a\x02ab")
        assert made.status_code == 201

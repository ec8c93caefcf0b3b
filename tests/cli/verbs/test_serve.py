"""The verbs `serve` and `config`: places that are printed, plug-ins, a file of issuers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.serve import service_process

from protoslice.server.settings import Settings
from protoslice.server.transport.run import tell_places

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

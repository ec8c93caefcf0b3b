"""The verb `config`, over a file of issuers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
        "# https://ci.example: JWTs for models by RS256 or ES256",
        "#   where repository is a/* or b/* and ref is main: read write in the space team, on the tags ci-*",
    ]


def test_config_tells_mistakes_in_issuers(call: Any, tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(FILE.replace("write", "wriet"))
    done = call("config", code=2, PROTOSLICE_ISSUERS=str(tmp_path / "issuers.toml"))
    assert "issuer[0].allow[0].scopes: 'wriet' is not one of" in done.stderr

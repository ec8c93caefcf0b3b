"""JSON is read and written in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import protoslice

PACKAGE = Path(protoslice.__file__).parent
KEPT = {"access", "observability", "pages", "rendering"}
"""Folders of the server that read JSON of the service's own, or of issuers that its operator trusts."""


def offenders(package: Path, pattern: str) -> list[str]:
    files = [*package.joinpath("server").rglob("*.py"), *package.joinpath("client", "http").rglob("*.py")]
    return [
        str(file.relative_to(package))
        for file in sorted(files)
        if re.search(pattern, file.read_text()) and file.relative_to(package).parts[1] not in KEPT
    ]


@pytest.mark.parametrize("pattern", [r"\bJSONResponse\b", r"\bjson\.loads\(|import .*\bloads\b"])
def test_json_of_others_is_read_and_written_by_one_module(pattern: str) -> None:
    assert offenders(PACKAGE, pattern) == []


def test_offenders_are_found(tmp_path: Path) -> None:
    tmp_path.joinpath("server").mkdir()
    tmp_path.joinpath("server", "routes.py").write_text("from starlette.responses import JSONResponse, Response\n")
    assert offenders(tmp_path, r"\bJSONResponse\b") == ["server/routes.py"]

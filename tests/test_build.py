"""Versions of builds: those of two commits differ, that of a release is its name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from tests.support.serve import service_process
from tools import package_build

import protoslice
from protoslice.build import DESCRIBE

RELEASE = metadata.version("protoslice")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a commit."""
    package = tmp_path / "service" / "protoslice"
    package.mkdir(parents=True)
    for name in ("__init__.py", "build.py"):
        shutil.copy(Path(protoslice.__file__).parent / name, package)
    (tmp_path / "pyproject.toml").touch()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "pyproject.toml", "service/protoslice/__init__.py", "service/protoslice/build.py")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example", *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "x")
    return git(folder, "rev-parse", "--short=9", "HEAD")


def version(folder: Path, **environment: str) -> str:
    """Return the version that the package in a checkout says."""
    command = [sys.executable, "-c", "import protoslice; print(protoslice.__version__)"]
    given = os.environ | {"PYTHONPATH": str(folder / "service"), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run(command, cwd="/", env=given, capture_output=True, text=True, check=True).stdout.strip()


def test_builds_between_releases_have_different_versions(checkout: Path) -> None:
    found = [version(checkout)]
    assert found == [f"{RELEASE}+g{git(checkout, 'rev-parse', '--short=9', 'HEAD')}"]
    git(checkout, "tag", f"v{RELEASE}")
    assert version(checkout) == RELEASE
    after = commit(checkout)
    assert version(checkout, GIT_DIR="/nowhere") == f"{RELEASE}+1.g{after}"
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("changed")
    assert version(checkout) == f"{RELEASE}+1.g{after}.dirty"


def test_version_without_git_is_that_of_the_file(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    assert version(checkout) == RELEASE
    file = checkout / "service" / "protoslice" / "build.txt"
    for text, expected in (
        ("1a2b3c4d5\n", f"{RELEASE}+g1a2b3c4d5"),
        ("v0.0.9-12-g1a2b3c4d5", f"{RELEASE}+12.g1a2b3c4d5"),
        (f"v{RELEASE}-0-g1a2b3c4d5", RELEASE),
        ("unknown", RELEASE),
        ("", RELEASE),
        ("<script>", RELEASE),
    ):
        file.write_text(text)
        assert version(checkout) == expected


def test_running_service_says_its_version(tmp_path: Path) -> None:
    settings = {"PROTOSLICE_LOG_LEVEL": "error"}
    with service_process("--storage", tmp_path.as_uri(), settings=settings) as service:
        assert (
            f'protoslice_build_info{{version="{protoslice.__version__}"}} 1.0'
            in httpx.get(f"{service.url}/metrics").text
        )
        assert httpx.get(f"{service.url}/openapi.json").json()["info"]["version"] == protoslice.__version__
        assert f"protoslice {protoslice.__version__}, database schema " in service.log.read_text()


def test_the_build_asks_git_as_the_package_does() -> None:
    assert package_build.DESCRIBE == DESCRIBE

"""Services and programs for clients of other authors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.support.environments import ROOT
from tests.support.serve import service_process

MADE: Final = ROOT / ".make"
"""The folder for programs that are installed or built for the clients."""
HERE: Final = Path(__file__).parent
CALLS: Final = HERE / "calls"
"""The scripts that run in the clients' environments."""
_BUILT: Final = {
    "versitygw": MADE / "versitygw-v1.8.0",
    "azurite": MADE / "azurite-3.37.0/node_modules/.bin/azurite-blob",
}
Command = str | Path


@dataclass(frozen=True, slots=True)
class Service:
    """A running service, and a token with all rights; the token is empty if the service requires none."""

    url: str
    token: str

    @property
    def host(self) -> str:
        """The host and port."""
        return self.url.removeprefix("http://")


@contextmanager
def serving(
    folder: Path, *, closed: bool = False, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Service]:
    """Run a service over an empty folder; it requires tokens if it is `closed`."""
    storage = {"PROTOSLICE_STORAGE": (folder / f"storage-{closed}").as_uri(), **settings}
    with service_process(settings=storage | ({"PROTOSLICE_AUTH": "tokens"} if closed else {})) as service:
        token = ""
        if closed:
            assert service.running.stdout is not None
            found = re.search(r"psl_\w+", service.running.stdout.readline())
            assert found is not None, "a closed service prints its first token"
            token = found[0]
        yield Service(service.url, token)


def ended(
    *command: Command, folder: Path, env: Mapping[str, str] | None = None, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """Return a program that has ended, with all its output."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **(env or {})}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        timeout=seconds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def good(*command: Command, folder: Path, env: Mapping[str, str] | None = None, seconds: float = 300) -> str:
    """Run a program that must succeed, and return all its output."""
    done = ended(*command, folder=folder, env=env, seconds=seconds)
    assert done.returncode == 0, (command, done.returncode, done.stdout)
    return done.stdout


def refused(words: str, *command: Command, folder: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a program that must fail and print `words`."""
    done = ended(*command, folder=folder, env=env)
    assert done.returncode != 0, (command, done.stdout)
    assert words in " ".join(done.stdout.split()), (command, done.stdout)


def programs(*names: str) -> None:
    """Install programs that are missing."""
    subprocess.run(["sh", ROOT / "tools/programs.sh", *names], check=True)


def program(name: str) -> Path:
    """Return the path of a program in `.make`; build the program if it is missing."""
    programs(name)
    return _BUILT[name] if name in _BUILT else MADE / name


def built_page() -> None:
    """Build the page if it is not built."""
    if not (ROOT / "service/protoslice/server/pages/built/first.json").exists():
        subprocess.run(["sh", ROOT / "web/build.sh", sys.executable], check=True)


def built_with_go(name: str, module: str, version: str) -> Path:
    """Return a program that Go builds from a module without optimization; build the program if it is missing."""
    program = MADE / f"{name}-{version}" / name
    if not program.exists():
        flags = {"GOBIN": str(program.parent), "CGO_CFLAGS": "-O0", "CGO_CXXFLAGS": "-O0"}
        subprocess.run(["go", "install", f"{module}@{version}"], check=True, env=os.environ | flags)
    return program


def protoslice(*arguments: Command, service: Service, folder: Path) -> str:
    """Return the output of our command line."""
    command = [sys.executable, "-m", "protoslice.cli", *arguments]
    return good(*command, folder=folder, env={"PROTOSLICE_URL": service.url, "PROTOSLICE_TOKEN": service.token})

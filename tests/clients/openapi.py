"""Clients that generators make from the OpenAPI document.

The page is checked against the types of openapi-typescript. The programs of `examples/` are generated, compiled and run
against an open and a closed service, with one broken connection. With other media types in the document, they fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.clients.running import MADE, Command, built_with_go, programs, serving
from tests.support.environments import ROOT, python_of
from tests.support.stores import onnx
from tests.support.wire import Relay

DOCUMENT: Final = ROOT / "openapi/openapi.json"
PACKAGES: Final = ("openapi-python-client==0.29.1", "ruff")
OAPI_CODEGEN: Final = ("oapi-codegen", "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen", "v2.8.2")
SAID: Final = (
    "stream of unknown length: store ", "continue at ", "resumable upload: store ", "chunks; number ",
    "the graph without weights: ", "tensors; the first bytes of ", "tag created, moved, refused: ", "201", "200", "412",
)  # fmt: skip
"""The expected output of each program, in this order."""
LARGE: Final = 6_000_000
"""The size of a chunk that needs more than four ranges, since longer ranges have no digest."""
MUTANTS: Final = {
    ("/v1/stores", "post", "application/octet-stream"): "application/x-bytes",
    ("/v1/uploads/{upload}", "patch", "application/offset+octet-stream"): "application/partial-upload",
    ("/v1/tags/{tag}", "put", "application/json"): "application/xml",
}
"""Other media types of bodies, by path, method and media type."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of `examples/`, ready to run, with the versions of its tools."""

    version: str
    command: list[Command]
    env: Mapping[str, str]


def python(folder: Path, document: Path) -> Program:
    """The Python program, with a client of openapi-python-client."""
    interpreter, generated = python_of(*PACKAGES), folder / "client"
    _done(
        interpreter.with_name("openapi-python-client"), "generate", "--fail-on-warning",
        "--config", ROOT / "openapi/python-client.yaml", "--path", document, "--output-path", generated,
        env={"PATH": f"{interpreter.parent}{os.pathsep}{os.environ['PATH']}"},  # ruff formats the generated code
    )  # fmt: skip
    version = f"{PACKAGES[0]} under {_done(interpreter, '--version')}"
    return Program(version, [interpreter, "example.py"], {"PYTHONPATH": str(generated)})


def go(folder: Path, document: Path) -> Program:
    """The Go program, with a client of oapi-codegen."""
    _done(built_with_go(*OAPI_CODEGEN), "-config", "oapi-codegen.yaml", document, folder=folder)
    _done("go", "mod", "tidy", folder=folder)
    tracked = ROOT / "examples/go/go.mod"
    assert (folder / "go.mod").read_text() == tracked.read_text(), "commit what `go mod tidy` makes of go.mod"
    _done("go", "vet", "./...", folder=folder)
    _done("go", "build", "-o", "example", ".", folder=folder)
    version = f"{OAPI_CODEGEN[0]} {OAPI_CODEGEN[2]} under {_done('go', 'version')}"
    return Program(version, [folder / "example"], {})


def typescript(folder: Path, document: Path) -> Program:
    """The TypeScript program, with openapi-fetch and types of openapi-typescript."""
    packages = MADE / "typescript-example"  # installed once for all runs
    packages.mkdir(exist_ok=True)
    shutil.copy(folder / "package.json", packages)
    _done("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent", folder=packages)
    (folder / "node_modules").symlink_to(packages / "node_modules")
    tools = packages / "node_modules/.bin"
    _done(tools / "openapi-typescript", document, "--output", folder / "protoslice.d.ts", folder=folder)
    _done(tools / "tsc", folder=folder)
    pinned = json.loads((folder / "package.json").read_text())
    named = ", ".join(f"{name} {of}" for name, of in (pinned["dependencies"] | pinned["devDependencies"]).items())
    return Program(f"{named} under Node {_done('node', '--version')}", ["node", "example.js"], {})


LANGUAGES: Final[Mapping[str, Callable[[Path, Path], Program]]] = {"python": python, "go": go, "typescript": typescript}


def run(folder: Path) -> str:
    """Generate, compile and run all programs; raise an error if a generator warns or a call fails."""
    programs("npm")
    subprocess.run(["sh", ROOT / "web/build.sh", sys.executable, "check"], check=True)
    changed, versions = folder / "changed.json", []
    changed.write_text(_mutant())
    for language in LANGUAGES:
        versions.append(_run(language, DOCUMENT))
        try:
            _run(language, changed)
        except subprocess.CalledProcessError as failure:
            print(f"fails with other media types: {failure.output.strip().splitlines()[-1][:200]}", flush=True)
        else:
            raise AssertionError(f"{language}: other media types of the document are not noticed")
    return "; ".join(versions)


def _mutant() -> str:
    document = json.loads(DOCUMENT.read_text())
    for (path, method, media), other in MUTANTS.items():
        content = document["paths"][path][method]["requestBody"]["content"]
        content[other] = content.pop(media)
    return json.dumps(document)


def _run(language: str, document: Path) -> str:
    """Generate, compile and run a program against an open and a closed service; return its versions."""
    with TemporaryDirectory() as name:
        folder, model = Path(name) / language, Path(name) / "model.onnx"
        made_here = shutil.ignore_patterns("node_modules", "protoslice*", "client", "go.sum")
        shutil.copytree(ROOT / "examples" / language, folder, ignore=made_here)
        model.write_bytes(onnx(LARGE, 2_000_000, 4000, 300))
        program = LANGUAGES[language](folder, document)
        for closed in (False, True):
            with serving(Path(name), closed=closed) as service:
                # The first upload succeeds, and the connection breaks in the middle of the second.
                line = Relay(service.url, up=1.5 * model.stat().st_size)
                env = {**program.env, "PROTOSLICE_TOKEN": service.token}
                printed = _done(*program.command, line.url, model, folder=folder, env=env)
                at = 0
                for said in SAID:
                    at = printed.find(said, at)
                    assert at >= 0, f"{said!r} is missing in: {printed}"
    return f"{language}: {program.version}"


def _done(*command: Command, folder: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output; raise an error if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    if done.returncode:
        print(done.stdout)
    done.check_returncode()
    return done.stdout.strip()

"""Public names of the library, and the modules that importing it costs.

Defaults that a service and the library share are equal. Versions of builds of two commits differ, and a release's
version is its name. A store's id contains everything that decides the bytes of its views, and nothing else.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from importlib import metadata
from inspect import Parameter, getmembers, isawaitable, isfunction, signature, unwrap
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import httpx
import pytest
from tests.support.serve import service_process
from tools import package_build

import protoslice
from protoslice import AsyncClient, Client, defaults
from protoslice.build import DESCRIBE
from protoslice.client.asynchronous import AsyncRecords
from protoslice.client.records import RemoteRecords
from protoslice.server.bodies.new_store import DEFAULT_MAX_CHUNK, DEFAULT_MIN_CHUNK
from protoslice.server.services import store_options
from protoslice.server.settings import Settings
from protoslice.serving import StoreOptions
from protoslice.sizes import parse_size
from protoslice.splitting import SplitPolicy
from protoslice.stores import IngestRequest
from protoslice.versions import Policy, store_id

PACKAGES = ["riegeli", "schema", "streams"]
MODULES = [
    "library.models",
    "models",
    "references",
    "library.proto",
    "sizes",
    "sources.files",
    "sources.opening",
    "sources.ropes",
    "sources.source",
    "uris",
]


def test_the_package_shows_exactly_this() -> None:
    assert sorted(protoslice.__all__) == [
        "AsyncClient",
        "Chunk",
        "Client",
        "Large",
        "LazyArray",
        "LocalModel",
        "Node",
        "Proto",
        "ProtosliceError",
        "Records",
        "RemoteModel",
        "Rope",
        "Split",
        "View",
        "__version__",
        "open",
        "open_model",
        "records",
    ]
    assert all(hasattr(protoslice, name) for name in protoslice.__all__)
    assert _public(protoslice) <= set(protoslice.__all__)


def test_the_types_of_the_package_are_those_of_its_names() -> None:
    tree = ast.parse(Path(protoslice.__file__).with_suffix(".pyi").read_text())
    found = [(node.module, name) for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]
    for module, name in found:
        assert getattr(protoslice, str(name.asname)) is getattr(importlib.import_module(str(module)), name.name)
    assert {name.asname for _, name in found} | {"__version__"} == {*protoslice.__all__}


def test_modules_import_public_names_from_where_they_are_made() -> None:
    """The linter of layers does not see the package's lazy imports."""
    files = Path(protoslice.__file__).parent.rglob("*.py")
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    imported = [line.split(" import ")[1].split(", ") for line in lines if line.startswith("from protoslice import ")]
    assert {name.split(" as ")[0] for names in imported for name in names} & {*protoslice.__all__, "("} == set()
    assert "import protoslice" not in lines


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_what_a_package_shows(name: str) -> None:
    module = importlib.import_module(f"protoslice.{name}")
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)


CALLS = {name: call for name in protoslice.__all__ if isfunction(call := getattr(protoslice, name))} | {
    f"{kind.__name__}.{name}": call
    for kind in (Client, AsyncClient, RemoteRecords, AsyncRecords)
    for name, call in getmembers(kind, isfunction)
    if call.__module__.startswith("protoslice") and (name == "__init__" or not name.startswith("_"))
}


@pytest.mark.parametrize("call", CALLS)
def test_an_option_that_is_misspelled_is_refused(call: str) -> None:
    """The error has the nearest name, for every option of every public function and method of a client."""
    misspelled = {f"{name}_": name for name in _options(CALLS[call])} | {"x" * 20: ""}
    for given, meant in misspelled.items():
        with pytest.raises(TypeError, match=f"has no option '{given}'.*{meant}"):
            _run(CALLS[call](object.__new__(AsyncClient), **{given: None}))


def _kinds(call: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Return names and annotations of all keywords of a call."""
    for name, parameter in signature(call).parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            kind = get_args(get_type_hints(unwrap(call))[name])[0]
            yield from ((option, str(each)) for option, each in kind.__annotations__.items())
        elif name != "self" and parameter.kind is not Parameter.VAR_POSITIONAL:
            yield name, str(parameter.annotation)


SEVERAL = [
    (call, name)
    for call, function in CALLS.items()
    for name, kind in _kinds(function)
    if re.search(r"\b(Sequence|Iterable)\[str\]", kind)
]


@pytest.mark.parametrize(("call", "name"), SEVERAL)
def test_a_string_is_refused_where_several_are_taken(call: str, name: str) -> None:
    """A string would be taken for its characters: `tags="abc"` for three tags."""
    with pytest.raises(TypeError, match=rf"'{name}': use \['abc'\], not 'abc'"):
        _run(CALLS[call](object.__new__(AsyncClient), **{name: "abc"}))


def test_a_string_is_refused_by_its_position_too() -> None:
    assert {("Client.push", "tags"), ("Client.remove", "force"), ("AsyncClient.parts", "views")} <= set(SEVERAL)
    with pytest.raises(TypeError, match="'views'"):
        object.__new__(Client).parts("m:1", "chunks/3")


def _options(call: Callable[..., Any]) -> Iterator[str]:
    """Return the names of all keywords of a call; for a `TypedDict`, the names of its members."""
    yield from (name for name, _ in _kinds(call))


def _run(made: Any) -> None:
    """Await the result of an asynchronous method, up to its first item."""
    if isawaitable(made):
        asyncio.run(_awaited(made))
    elif hasattr(made, "__anext__"):
        asyncio.run(_awaited(anext(made)))


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made


def _public(module: ModuleType) -> set[str]:
    """Return functions and classes without an underscore that the package made."""
    names = {name for name, value in vars(module).items() if not name.startswith("_") and callable(value)}
    return {name for name in names if str(getattr(vars(module)[name], "__module__", "")).startswith("protoslice")}


@pytest.mark.parametrize("name", ["protoslice", *[f"protoslice.{name}" for name in [*PACKAGES, *MODULES]]])
def test_it_imports_without_the_web_and_without_numpy(name: str) -> None:
    script = (
        f"import sys, {name}\n"
        "banned = {'fastapi', 'starlette', 'uvicorn', 'httpx', 'pydantic', 'numpy', 'typer', 'rich', 'hypothesis'}\n"
        "print(sorted(banned & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    """A user of one module does not wait for the modules of all formats: names are imported on demand."""
    script = (
        "import sys, protoslice\n"
        "def count(): return len([name for name in sys.modules if name.startswith('protoslice')])\n"
        "alone = count()\n"
        "import protoslice.errors\n"
        "print(alone, count(), hasattr(protoslice, 'no_such_name'), protoslice.open.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["1", "2", "False", "protoslice.library.opening"]


def test_clients_are_those_of_the_client_package() -> None:
    from protoslice.client import AsyncClient, Client

    assert (protoslice.Client, protoslice.AsyncClient) == (Client, AsyncClient)


def test_version_is_that_of_the_build() -> None:
    assert protoslice.__version__.partition("+")[0] == metadata.version("protoslice")
    shown = subprocess.run(
        [sys.executable, "-m", "protoslice.cli", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert shown.stdout == f"protoslice {protoslice.__version__}\n"


def test_client_without_its_extra_names_the_extra() -> None:
    script = (
        "import sys\n"
        "sys.modules['httpx'] = None\n"
        "import protoslice\n"
        "assert 'Proto' in dir(protoslice)\n"
        "from protoslice import Proto\n"
        "try:\n"
        "    protoslice.Client\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install '.[client]'" in done.stdout


def test_chunks_are_cut_alike_at_every_door() -> None:
    here = (defaults.MIN_CHUNK, defaults.MAX_CHUNK)
    assert (parse_size(DEFAULT_MIN_CHUNK), parse_size(DEFAULT_MAX_CHUNK)) == here
    assert (IngestRequest().min_chunk, IngestRequest().max_chunk) == here
    assert (SplitPolicy().min_chunk, SplitPolicy().max_chunk) == here


def test_stores_have_the_same_defaults_with_and_without_a_service() -> None:
    served, alone = store_options(Settings(storage="memory://")), StoreOptions()
    # Replicas, clients and registered objects concern only a service.
    uploads = replace(served.uploads, max_open_per_client=alone.uploads.max_open_per_client)
    served = replace(served, uploads=uploads, trust_seconds=alone.trust_seconds, register_options={})
    assert served == alone


RELEASE = metadata.version("protoslice")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with a commit."""
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
    """Return the version that the package in a checkout reports."""
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


FILES = [("b.bin", 3, "b" * 64), ("a/é.onnx", 1 << 40, "a" * 64)]
POLICY = Policy(
    root="a/é.onnx", type="onnx.ModelProto", min_chunk=1 << 20, max_chunk=1 << 30, schema="5" * 64, planner=7
)


def test_the_id_is_as_documented() -> None:
    """Clients in other languages compute the id, so the hashed text never changes for this scheme."""
    text = (
        '["protoslice store 2",'
        rf'[["a/\u00e9.onnx",1099511627776,"{"a" * 64}"],["b.bin",3,"{"b" * 64}"]],'
        rf'["a/\u00e9.onnx","onnx.ModelProto",1048576,1073741824],"{"5" * 64}",7]'
    )
    assert store_id(FILES, POLICY) == hashlib.sha256(text.encode()).hexdigest()


def test_a_store_without_a_proto_has_an_id() -> None:
    policy = Policy(root=None, type=None, min_chunk=1, max_chunk=2, schema=None, planner=None)
    text = '["protoslice store 2",[["x",0,["s3://b/x","\\"e\\""]]],[null,null,1,2],null,null]'
    assert store_id([("x", 0, ["s3://b/x", '"e"'])], policy) == hashlib.sha256(text.encode()).hexdigest()


def test_the_order_of_the_files_is_no_matter() -> None:
    assert store_id(FILES, POLICY) == store_id(reversed(FILES), POLICY)


@pytest.mark.parametrize(
    "other",
    [
        replace(POLICY, root="b.bin"),
        replace(POLICY, type="onnx.GraphProto"),
        replace(POLICY, type=None),
        replace(POLICY, min_chunk=1),
        replace(POLICY, max_chunk=1 << 31),
        replace(POLICY, schema="6" * 64),
        replace(POLICY, schema=None),
        replace(POLICY, planner=8),
    ],
)
def test_whatever_decides_about_bytes_changes_the_id(other: Policy) -> None:
    assert store_id(FILES, POLICY) != store_id(FILES, other)


@pytest.mark.parametrize("place", range(3))
def test_whatever_is_in_the_files_changes_the_id(place: int) -> None:
    changed = list(FILES[0])
    changed[place] = {0: "c.bin", 1: 4, 2: "c" * 64}[place]
    path, size, content = changed
    assert store_id(FILES, POLICY) != store_id([(str(path), int(str(size)), str(content)), FILES[1]], POLICY)

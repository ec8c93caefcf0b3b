"""Public names of the library, and the modules that importing it costs."""

import ast
import asyncio
import importlib
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from importlib import metadata
from inspect import Parameter, getmembers, isawaitable, isfunction, signature, unwrap
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest

import protoslice
from protoslice import AsyncClient, Client
from protoslice.client.asynchronous import AsyncRecords
from protoslice.client.records import RemoteRecords

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
    """The linter of layers does not see what the package itself imports on demand."""
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
    """By the nearest name, for every option of every public function and method of a client."""
    misspelled = {f"{name}_": name for name in _options(CALLS[call])} | {"x" * 20: ""}
    for given, meant in misspelled.items():
        with pytest.raises(TypeError, match=f"has no option '{given}'.*{meant}"):
            _run(CALLS[call](object.__new__(AsyncClient), **{given: None}))


def _kinds(call: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Names and annotations of all keywords of a call."""
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
    """It would be taken for its characters: `tags="abc"` for three tags."""
    with pytest.raises(TypeError, match=rf"'{name}': use \['abc'\], not 'abc'"):
        _run(CALLS[call](object.__new__(AsyncClient), **{name: "abc"}))


def test_a_string_is_refused_by_its_position_too() -> None:
    assert {("Client.push", "tags"), ("Client.remove", "force"), ("AsyncClient.parts", "views")} <= set(SEVERAL)
    with pytest.raises(TypeError, match="'views'"):
        object.__new__(Client).parts("m:1", "chunks/3")


def _options(call: Callable[..., Any]) -> Iterator[str]:
    """Names of all keywords of a call; those of a `TypedDict` one by one."""
    yield from (name for name, _ in _kinds(call))


def _run(made: Any) -> None:
    """Await what an asynchronous method returns, up to its first item."""
    if isawaitable(made):
        asyncio.run(_awaited(made))
    elif hasattr(made, "__anext__"):
        asyncio.run(_awaited(anext(made)))


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made


def _public(module: ModuleType) -> set[str]:
    """Functions and classes without an underscore that the package itself made."""
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
    """A user of one module does not wait for those of all formats: names come when they are asked for."""
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

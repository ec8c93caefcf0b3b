"""Public names of the library, and the modules that importing it costs."""

import importlib
import subprocess
import sys
from importlib import metadata
from types import ModuleType

import pytest

import protoslice

PACKAGES = ["riegeli", "schema", "streams"]
MODULES = [
    "library.models",
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
        "LocalModel",
        "Node",
        "Proto",
        "ProtosliceError",
        "Records",
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


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_what_a_package_shows(name: str) -> None:
    module = importlib.import_module(f"protoslice.{name}")
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)


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

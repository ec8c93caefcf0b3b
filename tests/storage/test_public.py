"""Public names of the storage packages, and the cost of importing them."""

import subprocess
import sys
from types import ModuleType

import pytest

import protoslice.storage
import protoslice.testing
from protoslice.storage import Storage, Writer


@pytest.mark.parametrize("package", [protoslice.storage, protoslice.testing])
def test_all_is_what_is_public(package: ModuleType) -> None:
    public = {
        name
        for name, member in vars(package).items()
        if not name.startswith("_") and not isinstance(member, ModuleType)
    }
    assert set(package.__all__) == public


def test_importing_takes_no_client_library() -> None:
    script = (
        "import sys, protoslice.storage, protoslice.testing;"
        "print(sorted({'obstore', 'httpcore', 'anyio', 'boto3', 'pytest', 'starlette'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("interface", [Storage, Writer])
def test_every_method_has_its_contract(interface: type) -> None:
    members = {name: member for name, member in vars(interface).items() if not name.startswith("_")}
    assert [name for name, member in members.items() if callable(member) and not member.__doc__] == []

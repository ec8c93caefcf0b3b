"""URI schemes of our package and of others."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from protoslice import plugins
from protoslice.errors import InvalidInput, Unsupported
from protoslice.plugins import PluginWarning
from protoslice.storage import (
    FileStorage,
    MemoryStorage,
    ObjectKey,
    Storage,
    open_storage,
    register,
    registry,
    schemes,
    unregister,
)
from protoslice.storage.registry import described


class Future(MemoryStorage):
    interface = (99, 0)


def open_theirs(uri: str, options: Mapping[str, str]) -> Storage:
    assert (uri, options) == ("theirs://somewhere", {"token": "x"})
    return MemoryStorage()


def open_future(uri: str, options: Mapping[str, str]) -> Storage:
    return Future()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    points = EntryPoints(
        EntryPoint(name, f"{__name__}:{function}", registry.BACKENDS.group)
        for name, function in (("theirs", "open_theirs"), ("future", "open_future"), ("two", "a"), ("two", "b"))
    )
    monkeypatch.setattr(EntryPoint, "load", lambda self: globals()[self.attr])
    monkeypatch.setattr(plugins, "entry_points", points.select)
    registry.BACKENDS.forget()
    yield
    monkeypatch.undo()
    registry.BACKENDS.forget()


def test_our_schemes() -> None:
    assert {"file", "memory", "s3", "gs", "az", "http", "https", "fsspec+NAME"} <= set(schemes())


def test_a_file_uri_names_a_directory(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_storage(f"file://{tmp_path}/with%20space%25/deep") as storage:
            assert isinstance(storage, FileStorage)
            await storage.put(ObjectKey("a"), b"x")

    asyncio.run(work())
    assert (tmp_path / "with space%" / "deep" / "a").read_bytes() == b"x"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "plain",
        "/path",
        "unknown://x",
        "file://relative/path",
        "file:relative",
        "file:///a?b",
        "file:///a#b",
        "memory:///x",
    ],
)
def test_uris_that_open_nothing(uri: str) -> None:
    with pytest.raises(InvalidInput):
        open_storage(uri)


def test_options_a_backend_does_not_have_are_refused() -> None:
    with pytest.raises(InvalidInput):
        open_storage("memory://", {"region": "x"})
    with pytest.raises(InvalidInput, match="Unknown option 'no_such_option'") as caught:
        open_storage("s3://bucket", {"no_such_option": "a-secret"})
    assert "a-secret" not in str(caught.value)
    with pytest.raises(InvalidInput, match="Account must be specified"):
        open_storage("az://container/folder")


@pytest.mark.usefixtures("installed")
def test_others_bring_schemes() -> None:
    assert isinstance(open_storage("theirs://somewhere", {"token": "x"}), MemoryStorage)
    assert "theirs" in schemes()


@pytest.mark.usefixtures("installed")
def test_a_backend_for_another_interface_is_refused() -> None:
    with pytest.raises(Unsupported, match="interface version 99"):
        open_storage("future://x")


@pytest.mark.usefixtures("installed")
def test_a_scheme_claimed_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Several"):
        open_storage("two://x")


@pytest.mark.parametrize(
    ("uri", "module"),
    [("s3://bucket", "protoslice.storage.bucket"), ("https://host/path", "protoslice.storage.web")],
)
def test_what_is_not_installed_is_named(uri: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        Unsupported, match=r"the extra 'cloud', in a checkout of Protoslice by pip install '\.\[cloud\]'"
    ):
        open_storage(uri)


class Newer(MemoryStorage):
    """A storage for a later minor version of the interface."""

    interface = (2, 9)


def test_registering_a_scheme(request: pytest.FixtureRequest) -> None:
    register("mine", lambda uri, options: MemoryStorage())
    request.addfinalizer(lambda: unregister("mine"))
    assert isinstance(open_storage("mine://host"), MemoryStorage)
    with pytest.raises(
        InvalidInput, match=f"The storage backend for 'mine' is already registered by module {__name__}"
    ):
        register("mine", open_theirs)
    with pytest.raises(InvalidInput, match="for 's3' is already registered by protoslice"):
        register("s3", open_theirs)
    unregister("mine")
    assert "mine" not in schemes()


@pytest.mark.parametrize("scheme", ["", "m", "Mine", "1st", "a b", "mine:", "mine://"])
def test_a_scheme_that_is_none(scheme: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid scheme"):
        register(scheme, open_theirs)


@pytest.mark.parametrize(
    ("factory", "output"),
    [
        (5, "is not a factory: a callable"),
        (lambda uri: MemoryStorage(), "does not accept"),
        (Storage, "lacks abilities, delete, get_range, get_ranges, list, put, stat, stream, writer"),
    ],
)
def test_what_is_no_factory(factory: Any, output: str) -> None:
    with pytest.raises(Unsupported, match=output):
        register("mine", factory)
    assert "mine" not in schemes()


@pytest.mark.parametrize(
    ("opens", "output"),
    [
        (lambda: 5, r"tests.storage.test_registry returned a int instead of a protoslice\.storage\.Storage"),
        (lambda: divmod(1, 0), "tests.storage.test_registry: ZeroDivisionError: "),
        (lambda: int("a-secret"), "tests.storage.test_registry: ValueError$"),
    ],
)
def test_what_a_factory_must_give(opens: Any, output: str, request: pytest.FixtureRequest) -> None:
    register("mine", lambda uri, options: opens())
    request.addfinalizer(lambda: unregister("mine"))
    with pytest.raises(Unsupported, match=f"the storage backend for 'mine' of module {output}"):
        open_storage("mine://host", {"token": "a-secret"})


def test_another_minor_version_is_told(request: pytest.FixtureRequest) -> None:
    register("mine", lambda uri, options: Newer())
    request.addfinalizer(lambda: unregister("mine"))
    with pytest.warns(PluginWarning, match=r"'mine' of module .* was written for a newer interface: 2\.9"):
        open_storage("mine://host")


@pytest.mark.usefixtures("installed")
def test_every_scheme_is_described() -> None:
    found = {each.scheme: each for each in described()}
    assert found["s3"].package == "protoslice"
    assert found["file"].abilities is not None
    assert found["file"].abilities.open_file
    assert found["https"].abilities is not None
    assert not found["https"].abilities.write
    assert found["theirs"].abilities is None
    assert found["theirs"].problem is None
    assert "Several installed packages" in str(found["two"].problem)

"""URI schemes, ours and others'."""

import asyncio
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from protoslice.errors import InvalidInput, Unsupported
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage, open_storage, registry, schemes


class Future(MemoryStorage):
    interface = 99


def open_theirs(uri: str, options: Mapping[str, str]) -> Storage:
    assert (uri, options) == ("theirs://somewhere", {"token": "x"})
    return MemoryStorage()


def open_future(uri: str, options: Mapping[str, str]) -> Storage:
    return Future()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(name, f"{__name__}:{function}", registry.GROUP)
        for name, function in (("theirs", "open_theirs"), ("future", "open_future"), ("two", "a"), ("two", "b"))
    )
    monkeypatch.setattr(EntryPoint, "load", lambda self: globals()[self.attr])
    monkeypatch.setattr(registry, "entry_points", points.select)


def test_our_schemes() -> None:
    assert {"file", "memory", "s3", "gs", "az", "http", "https"} <= set(schemes())


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
    with pytest.raises(InvalidInput, match="no option 'no_such_option'") as caught:
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
    with pytest.raises(Unsupported, match="interface 99"):
        open_storage("future://x")


@pytest.mark.usefixtures("installed")
def test_a_scheme_claimed_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="several"):
        open_storage("two://x")


@pytest.mark.parametrize(
    ("uri", "module"),
    [("s3://bucket", "protoslice.storage.cloud.backend"), ("https://host/path", "protoslice.storage.web.backend")],
)
def test_what_is_not_installed_is_named(uri: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unsupported, match=r"need the extra: pip install 'protoslice\[cloud\]'"):
        open_storage(uri)

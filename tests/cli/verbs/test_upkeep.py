"""The verbs for the upkeep of a storage, as an operator calls them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.support.catalogues import shared_catalogue
from tests.support.serve import service_process
from tests.support.stores import onnx, opened, upload, visible

from protoslice.storage import FileStorage, ObjectKey
from protoslice.stores import IngestRequest, Stores

PROGRAM = [sys.executable, "-m", "protoslice.cli"]


def call(*args: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PROGRAM, *args], env=os.environ | environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@asynccontextmanager
async def at(folder: Path) -> AsyncIterator[Stores]:
    """Open the stores of a directory and of the catalogue in the directory."""
    async with (
        FileStorage(str(folder)) as files,
        shared_catalogue(folder / "catalog.sqlite") as database,
        opened(files, database=database) as stores,
    ):
        yield stores


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """Return a directory with one store, and one removed store."""

    async def fill() -> None:
        async with at(tmp_path) as stores:
            await upload(stores, onnx(90_000))
            gone = (await upload(stores, onnx(70_000, seed=1))).store
            await stores.delete(gone.id)

    asyncio.run(fill())
    return tmp_path


def test_broken_promises_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from protoslice.cli import main

    async def forget(self: FileStorage, key: ObjectKey, data: bytes) -> str:
        return "tag"

    monkeypatch.setattr(FileStorage, "put", forget)
    monkeypatch.setattr(sys, "argv", ["protoslice", "storage", "check", tmp_path.as_uri()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    shown = capsys.readouterr().out
    assert "writing    This storage returns other bytes than were written last" in shown
    assert "\nbroken: an object is what was put: " in shown


def test_each_promise_is_printed_as_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from protoslice.cli import main

    put, shown = FileStorage.put, [""]

    async def look(self: FileStorage, key: ObjectKey, data: bytes) -> str:
        shown.append(shown[-1] + capsys.readouterr().out)
        return await put(self, key, data)

    monkeypatch.setattr(FileStorage, "put", look)
    monkeypatch.setattr(sys, "argv", ["protoslice", "storage", "check", tmp_path.as_uri()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    lines = (shown[-1] + capsys.readouterr().out).splitlines()
    promises = [line for line in lines if line.startswith("kept: ")]
    assert len(promises) > 50
    steps = [text.count("kept: ") for text in shown]
    assert steps[0] == 0
    assert steps[-1] > 40, "promises were printed before the last one was tried"
    assert len(set(steps)) > 20


def test_storage_that_does_not_answer_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from protoslice.errors import StorageUnavailable
    from protoslice.testing import check

    asked: list[ObjectKey] = []

    async def fail(self: FileStorage, key: ObjectKey, data: bytes) -> str:
        asked.append(key)
        raise StorageUnavailable("it gave no answer")

    monkeypatch.setattr(FileStorage, "put", fail)
    report = asyncio.run(check(tmp_path.as_uri()))
    assert (report.unsafe, report.outcomes, len(asked)) == ("it gave no answer", (), 1)
    assert not report.kept


def test_usage_counts_shared_bytes_once(storage: Path) -> None:
    async def share() -> None:
        async with at(storage) as stores:
            (info,) = (await visible(stores)).values()
            async with await stores.ingest(IngestRequest()) as ingest:
                refs = await stores.files(info.id)
                await ingest.take({f"{n}.onnx": refs["model.onnx"] for n in range(5)})
                await ingest.commit()

    uri, size = storage.as_uri(), len(onnx(90_000))
    before = json.loads(call("storage", "usage", uri, "--json").stdout)["default"]
    asyncio.run(share())
    after = json.loads(call("storage", "usage", uri, "--json").stdout)["default"]
    assert (before["stores"], before["logical_bytes"]) == (1, size)
    assert before["stored_bytes"] > size + 70_000, "the removed store, until it is collected"
    assert (after["stores"], after["logical_bytes"]) == (2, 6 * size)
    assert 0 <= after["stored_bytes"] - before["stored_bytes"] < 1000
    shown = call("storage", "usage", uri).stdout.split("\n")
    assert shown[0].split() == ["stores", "logical", "stored", "space"]
    assert shown[1].split()[0] == "2"
    assert shown[1].endswith("default")


def test_schemes_are_listed_with_plug_ins_and_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "my_plugin.py").write_text(
        "import protoslice.storage as s\ns.register('mine', lambda uri, options: s.MemoryStorage())\n"
    )
    rows = {
        row["scheme"]: row
        for row in json.loads(
            call("storage", "schemes", "--json", PYTHONPATH=str(tmp_path), PROTOSLICE_PLUGINS="my_plugin").stdout
        )
    }
    assert {"file", "memory", "s3", "gs", "az", "http", "https", "fsspec+NAME", "mine"} <= rows.keys()
    assert rows["mine"] == {"scheme": "mine", "package": "module my_plugin", "abilities": None, "problem": None}
    assert rows["s3"]["abilities"]["open_file"] is False
    table = [" ".join(line.split()) for line in call("storage", "schemes").stdout.splitlines()]
    assert "https protoslice durable, shared" in table
    missing = call("storage", "schemes", PROTOSLICE_PLUGINS="no_such_plugin", code=3).stderr
    assert missing == (
        "protoslice: Cannot import the module 'no_such_plugin' listed in PROTOSLICE_PLUGINS: "
        "ModuleNotFoundError: No module named 'no_such_plugin'\n"
    )


@pytest.mark.parametrize(
    ("prefix", "told"),
    [
        ("mine:///x", "'mine:///x' cannot be used: Invalid storage URI: give a host or bucket"),
        ("mine://x", "'mine://x' cannot be used: No storage backend for 'mine'; available: az, file"),
    ],
)
def test_a_prefix_that_allows_nothing_ends_the_service_at_its_start(prefix: str, told: str, tmp_path: Path) -> None:
    settings = {"PROTOSLICE_REGISTER_ALLOW": prefix, "PROTOSLICE_STORAGE": (tmp_path / "s").as_uri()}
    assert told in call("serve", "--port", "0", code=2, **settings).stderr


def test_a_warning_about_a_plug_in_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "my_plugin.py").write_text(
        "import protoslice.storage as s\n"
        "class Newer(s.MemoryStorage):\n"
        "    interface = (2, 99)\n"
        "s.register('mine', lambda uri, options: Newer())\n"
    )
    done = call("info", "mine://host/x", PYTHONPATH=str(tmp_path), PROTOSLICE_PLUGINS="my_plugin", code=4)
    warned, failed = done.stderr.splitlines()
    assert "note: the storage backend for 'mine' of module my_plugin was written for a newer interface" in warned
    assert failed == "protoslice: There is no object mine://host/x"


def test_unfinished_uploads_of_a_running_service_are_kept_for_an_hour(tmp_path: Path) -> None:
    gc = ["gc", "--storage", f"file://{tmp_path}", "--unfinished-seconds"]
    with service_process("--storage", f"file://{tmp_path}", settings={"PROTOSLICE_AUTH": "open"}) as service:

        def put(seed: int) -> int:
            return httpx.put(f"{service.url}/v1/stores?filename=m.onnx", content=onnx(90_000, seed=seed)).status_code

        assert put(1) == 201
        refused = call(*gc, "0", code=7)
        assert "Cannot use --unfinished-seconds below 3600 while other processes use the database" in refused.stderr
        assert f"process {service.running.pid} " in refused.stderr
        call(*gc, "0", "--dry-run")
        call(*gc, "3600")
        assert put(2) == 201, "into an object that was reserved before"
    call(*gc, "0")

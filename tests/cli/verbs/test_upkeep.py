"""The verbs that look after storage, as an operator calls them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.support.golden import GOLDEN
from tests.support.stores import keys_in, onnx, opened, upload, visible

from protoslice.storage import FileStorage, ObjectKey
from protoslice.stores import IngestRequest

PROGRAM = [sys.executable, "-m", "protoslice.cli"]


def call(*args: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PROGRAM, *args], env=os.environ | environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A directory with one store, and another that was removed."""

    async def fill() -> None:
        async with FileStorage(str(tmp_path)) as files, opened(files) as stores:
            await upload(stores, onnx(90_000))
            gone = (await upload(stores, onnx(70_000, seed=1))).store
            await stores.delete(gone.id)

    asyncio.run(fill())
    return tmp_path


def keys(storage: Path) -> list[str]:
    async def read() -> list[str]:
        async with FileStorage(str(storage)) as files:
            return await keys_in(files)

    return [key for key in asyncio.run(read()) if key != "tally/last" and not key.startswith("catalog.sqlite")]


def test_garbage_is_shown_then_removed(storage: Path) -> None:
    before = keys(storage)
    uri = storage.as_uri()
    assert json.loads(call("gc", "--storage", uri, "--json").stdout)["objects"] == 0, "it may be read still"
    dry = json.loads(call("gc", "--storage", uri, "--grace-seconds", "0", "--dry-run", "--json").stdout)
    assert dry == {
        "objects": 1,
        "bytes": dry["bytes"],
        "stores": 1,
        "leftovers": 0,
        "unreadable": None,
        "dry_run": True,
        "there": None,
    }
    assert keys(storage) == before
    shown = call("gc", "--grace-seconds", "0", PROTOSLICE_STORAGE=uri).stdout
    assert shown.startswith("removed: 1 object (")
    assert "1 deleted store," in shown
    left = keys(storage)
    assert len(left) == len(before) - 8, (
        "an object, the claim and the note beside them, a tombstone, two entries and their marks"
    )
    assert not [key for key in left if key.startswith("removed/")]
    assert len([key for key in left if key.startswith("stores/")]) == 1


def test_a_damaged_manifest_keeps_what_it_may_need(storage: Path) -> None:
    """Without its place in the index by time, the listings do not clear the store."""
    manifest = next(key for key in keys(storage) if key.startswith("stores/"))
    for entry in storage.glob(f"indexes/time/*-{manifest.rpartition('/')[2]}*"):
        entry.unlink()
    (storage / manifest).write_bytes(b"damage")
    before = keys(storage)
    done = call("gc", "--storage", storage.as_uri(), "--grace-seconds", "0", code=3)
    assert done.stdout.startswith("removed: 1 object (")
    assert done.stderr == f"protoslice: {manifest} is damaged: objects that it may need were kept\n"
    told = json.loads(call("gc", "--storage", storage.as_uri(), "--grace-seconds", "0", "--json", code=3).stdout)
    assert (told["unreadable"], told["objects"]) == (manifest, 0)
    left = keys(storage)
    assert manifest in left
    assert not [key for key in left if key.startswith("removed/")]
    assert len(before) - len(left) == 8, "those of the deleted store alone"


def test_storage_without_stores_is_not_made_one(tmp_path: Path) -> None:
    done = call("gc", "--storage", tmp_path.as_uri(), code=4)
    assert done.stderr == "protoslice: This storage contains no stores\n"
    assert list(tmp_path.iterdir()) == []
    call("gc", "--storage", "nothing://", code=2)


def test_a_directory_keeps_its_promises(tmp_path: Path) -> None:
    shown = call("storage", "check", tmp_path.as_uri()).stdout
    assert "writing    safe" in shown
    assert " kept, 0 broken" in shown
    told = json.loads(call("storage", "check", "memory://", "--json").stdout)
    assert told["kept"]
    assert not told["abilities"]["shared"]
    assert len(told["promises"]) > 60


def test_broken_promises_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from protoslice.cli import main

    async def overwrite(self: FileStorage, key: ObjectKey, data: bytes) -> str:
        return await self.put(key, data)

    monkeypatch.setattr(FileStorage, "put_if_absent", overwrite)
    monkeypatch.setattr(sys, "argv", ["protoslice", "storage", "check", tmp_path.as_uri()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    shown = capsys.readouterr().out
    assert "writing    This storage ignores create-if-absent" in shown
    assert "\nbroken: create does not replace: " in shown


async def test_storage_that_does_not_answer_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from protoslice.errors import StorageUnavailable
    from protoslice.testing import check

    asked: list[ObjectKey] = []

    async def fail(self: FileStorage, key: ObjectKey, data: bytes) -> str:
        asked.append(key)
        raise StorageUnavailable("it gave no answer")

    monkeypatch.setattr(FileStorage, "put_if_absent", fail)
    report = await check(tmp_path.as_uri())
    assert (report.unsafe, report.outcomes, len(asked)) == ("it gave no answer", (), 1)
    assert not report.kept


@pytest.mark.parametrize("verb", [("gc",), ("storage", "check"), ("storage", "usage")])
def test_help_has_an_example(verb: tuple[str, ...]) -> None:
    assert f"Example: protoslice {' '.join(verb)} " in call(*verb, "--help").stdout


def test_a_storage_of_the_version_before_is_refused_with_the_verb_that_upgrades_it(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "storage" / "layout1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert "protoslice storage upgrade" in call("gc", "--storage", tmp_path.as_uri(), code=3).stderr
    assert call("storage", "upgrade", tmp_path.as_uri()).stdout == "upgraded: 3 stores, 3 tags\n"
    report = json.loads(call("storage", "upgrade", tmp_path.as_uri(), "--json").stdout)
    assert (report["stores"], report["tags"], report["unreadable"]) == (3, 3, [])
    assert json.loads(call("gc", "--storage", tmp_path.as_uri(), "--json").stdout)["objects"] == 0


def test_a_damaged_store_is_named_by_an_upgrade(storage: Path) -> None:
    (path,) = (storage / "stores").iterdir()
    path.write_bytes(b"{}")
    assert f"stores/{path.name}" in call("storage", "upgrade", storage.as_uri(), code=3).stderr


async def test_usage_counts_shared_bytes_once(storage: Path) -> None:
    uri, size = storage.as_uri(), len(onnx(90_000))
    before = json.loads(call("storage", "usage", uri, "--json").stdout)["default"]
    async with FileStorage(str(storage)) as files, opened(files) as stores:
        (info,) = (await visible(stores)).values()
        async with await stores.ingest(IngestRequest()) as ingest:
            refs = await stores.files(info.id)
            await ingest.take({f"{n}.onnx": refs["model.onnx"] for n in range(5)})
            await ingest.commit()
    after = json.loads(call("storage", "usage", uri, "--json").stdout)["default"]
    assert (before["stores"], before["logical_bytes"]) == (1, size)
    assert before["stored_bytes"] > size + 70_000, "the removed store, until it is collected"
    assert (after["stores"], after["logical_bytes"], after["unreadable"]) == (2, 6 * size, 0)
    assert 0 <= after["stored_bytes"] - before["stored_bytes"] < 1000
    shown = call("storage", "usage", uri).stdout.split("\n")
    assert shown[0].split() == ["stores", "logical", "stored", "reclaimable", "space"]
    assert shown[1].split()[0] == "2"
    assert shown[1].endswith("default")


def test_usage_tells_of_manifests_that_it_cannot_read(storage: Path) -> None:
    (path,) = (storage / "stores").iterdir()
    path.write_bytes(b"{}")
    assert "1 manifest could not be read" in call("storage", "usage", storage.as_uri(), code=3).stderr


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
    assert rows["s3"]["abilities"]["exclusive_commit"] is False
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
        "    interface = (1, 99)\n"
        "s.register('mine', lambda uri, options: Newer())\n"
    )
    done = call("info", "mine://host/x", PYTHONPATH=str(tmp_path), PROTOSLICE_PLUGINS="my_plugin", code=4)
    warned, failed = done.stderr.splitlines()
    assert "note: the storage backend for 'mine' of module my_plugin was written for a newer interface" in warned
    assert failed == "protoslice: No object mine://host/x"

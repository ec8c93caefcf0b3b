"""Uploads: parts in order, writers that were overtaken, expiry by the clock of the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from protoslice.catalog import open_database
from protoslice.catalog.uploads import Overtaken, UploadRow, UploadTable

Work = Callable[[UploadTable, UploadTable], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    """Run `work` with the uploads of a space at two replicas."""

    async def run() -> None:
        async with open_database(url, "memory://") as one, open_database(url, "memory://") as other:
            await work(UploadTable(one, "team"), UploadTable(other, "team"))
            assert await UploadTable(one, "elsewhere").page("", 10, before=0) == []

    asyncio.run(run())


def _upload(id: str, **more: object) -> UploadRow:
    return UploadRow(**{"id": id, "client": "ann", "state": "open", "used": False, "record": "{}"} | more)  # type: ignore[arg-type]


def test_change_adds_and_replaces_parts(catalogue: str) -> None:
    async def work(one: UploadTable, other: UploadTable) -> None:
        held = await one.create(_upload("a"), keep_seconds=60)
        for parts, kept in ((("1",), 0), (("1", "2", "3"), 1), (("1", "4"), 1), (("1", "4"), 2), ((), 0)):
            held = await one.change(replace(held, parts=parts, record=f'"{kept}"'), kept_parts=kept, keep_seconds=None)
            assert await other.get("a") == (held, True)
            assert (held.parts, held.record) == (parts, f'"{kept}"')

    _run(catalogue, work)


def test_change_of_a_writer_that_was_overtaken_is_refused(catalogue: str) -> None:
    async def work(one: UploadTable, other: UploadTable) -> None:
        slow = await one.create(_upload("a"), keep_seconds=60)
        fast = await other.take("a")
        assert fast is not None
        with pytest.raises(Overtaken):
            await one.change(replace(slow, parts=("1",)), kept_parts=0, keep_seconds=60)
        assert (await other.get("a")) == (fast, True)
        await other.change(replace(fast, parts=("2",)), kept_parts=0, keep_seconds=60)
        with pytest.raises(Overtaken):
            await other.change(replace(fast, parts=("3",)), kept_parts=0, keep_seconds=60)
        found = await one.get("a")
        assert found is not None
        assert found[0].parts == ("2",)

    _run(catalogue, work)


def test_of_changes_at_once_one_takes_effect(catalogue: str) -> None:
    async def work(one: UploadTable, other: UploadTable) -> None:
        held = await one.create(_upload("a"), keep_seconds=60)
        changes = [
            table.change(replace(held, parts=(str(n),)), kept_parts=0, keep_seconds=60)
            for n, table in enumerate((one, other) * 4)
        ]
        done = await asyncio.gather(*changes, return_exceptions=True)
        assert sum(isinstance(each, Overtaken) for each in done) == 7, done
        assert await one.get("a") == (next(each for each in done if isinstance(each, UploadRow)), True)

    _run(catalogue, work)


def test_take_and_epoch_find_no_upload_that_is_over(catalogue: str) -> None:
    async def work(one: UploadTable, _: UploadTable) -> None:
        await one.create(_upload("done", state="stored"), keep_seconds=60)
        await one.create(_upload("late"), keep_seconds=-1)
        assert await one.take("done") is None
        assert await one.take("late") is None
        assert await one.take("none") is None
        assert await one.epoch("done") == 0
        assert await one.epoch("late") is None
        found = await one.get("late")
        assert found is not None
        assert not found[1]
        assert await one.exists("late")
        assert not await one.exists("none")

    _run(catalogue, work)


def test_open_by_client_counts_what_is_open(catalogue: str) -> None:
    async def work(one: UploadTable, _: UploadTable) -> None:
        for number, state in enumerate(("open", "complete", "stored", "failed", "gone")):
            await one.create(_upload(f"a{number}", state=state), keep_seconds=60)
        await one.create(_upload("late"), keep_seconds=-1)
        await one.create(_upload("used", state="complete", used=True), keep_seconds=60)
        await one.create(_upload("b", client="ben"), keep_seconds=60)
        assert await one.open_by_client() == {"ann": 2, "ben": 1}

    _run(catalogue, work)


def test_end_ends_what_expired_and_later_deletes_it(catalogue: str) -> None:
    async def work(one: UploadTable, _: UploadTable) -> None:
        for id, seconds in (("a", -1), ("b", 60), ("c", -1)):
            await one.create(_upload(id, parts=("1",)), keep_seconds=seconds)
        now = time.time() + 1
        await one.end(moment=now, before=now - 3600)
        assert await one.page("", 2, before=now - 3600) == ["a", "b"]
        assert await one.page("b", 2, before=now - 3600) == ["c"]
        found = await one.get("a")
        assert found is not None
        assert (found[0].state, found[0].parts) == ("gone", ())
        assert await one.page("", 10, before=now + 60) == ["b"]
        await one.end(moment=now, before=now + 60)
        assert await one.page("", 10, before=0) == ["b"]

    _run(catalogue, work)

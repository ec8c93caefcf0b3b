"""The checks after the kills: answers of every replica, rows and bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import httpx
from tests.support.stores import STORED_BYTES, assert_tidy, assert_whole, objects_in, opened, visible

from protoslice.database import connect
from protoslice.stores.collection import collect_garbage

if TYPE_CHECKING:
    from tests.kills.load import Run

COUNTED: Final = f"""
    SELECT ({STORED_BYTES}),
        (SELECT count(*) FROM stores WHERE deleted IS NULL),
        (SELECT coalesce(sum(size), 0) FROM stores WHERE deleted IS NULL),
        (SELECT coalesce(sum(stored_bytes), 0) FROM usage), (SELECT coalesce(sum(stores), 0) FROM usage),
        (SELECT coalesce(sum(logical_bytes), 0) FROM usage)"""
_DANGLING: Final = """
    SELECT name FROM names n WHERE repository = 0 AND kind = 'tag' AND NOT EXISTS (
        SELECT 1 FROM stores s WHERE s.space = n.space AND s.digest = n.store AND s.deleted IS NULL)"""
_USED_TWICE: Final = "SELECT object FROM store_objects GROUP BY space, object HAVING count(*) > 1"
_REFERRED: Final = """
    SELECT key FROM objects o WHERE EXISTS (
        SELECT 1 FROM store_objects r WHERE r.space = o.space AND r.object = o.id UNION ALL
        SELECT 1 FROM upload_objects r WHERE r.space = o.space AND r.object = o.id UNION ALL
        SELECT 1 FROM derived r WHERE r.space = o.space AND r.object = o.id)"""


class Reader:
    """A reader that compares the content with all acknowledged writes."""

    def __init__(self, run: Run, client: httpx.Client) -> None:
        self._run = run
        self._client = client
        self.read: Counter[str] = Counter()

    def get(self, url: str, **more: Any) -> httpx.Response:
        """Return the answer to a GET."""
        return self._client.get(url, **more)

    def expect(self, kind: str, what: str, found: object, wanted: object) -> None:
        """Count a value that is as acknowledged; record any other value as lost."""
        if found == wanted:
            self.read[kind] += 1
        else:
            shown = [each if isinstance(each, str | int | None) else type(each).__name__ for each in (found, wanted)]
            self._run.lose(f"{kind}: {what} is {shown[0]}, not {shown[1]}")

    def files(self, store: str, files: Mapping[str, bytes]) -> str:
        """Return "whole" for a store with these files, or else a text about the error."""
        for path, data in files.items():
            answer = self.get(f"/v1/stores/{store}/files/{path}")
            if answer.status_code != 200:
                return f"{answer.status_code} at {path}"
            if answer.content != data:
                return f"another content of {path}"
        return "whole"

    def tag(self, name: str) -> str | None:
        """Return the store that a tag points at, None if the tag does not exist, else the status."""
        answer = self.get(f"/v1/tags/{name}")
        if answer.status_code == 200:
            return str(answer.json()["store"])
        return None if answer.status_code == 404 else str(answer.status_code)

    def states(self) -> list[str]:
        """Check content that several writers changed; return the state of the contested stores."""
        for name, targets in self._run.targets.items():
            store = self.tag(name)
            if store is not None:  # the tag is gone with its last store
                known = store in targets and self.get(f"/v1/stores/{store}").status_code == 200
                self.expect("tags", f"{name} at {store}", known, True)
        states = []
        for store, content in self._run.contested:
            there = self.get(f"/v1/stores/{store}").status_code
            states.append("removed" if there == 404 else self.files(store, content.files))
            self.expect("contested", store, states[-1] in {"removed", "whole"}, True)
        return states


def read_back(run: Run, url: str) -> tuple[Counter[str], list[str]]:
    """Read everything at `url`; return the amounts by kind, and the state of the contested stores."""
    with httpx.Client(base_url=url, timeout=60, follow_redirects=True) as client:
        reader = Reader(run, client)
        for writer in run.writers:
            writer.check(reader)
        return reader.read, reader.states()


def check_space(run: Run) -> None:
    """Compare the service's usage of its space with the rows, while there are no writers."""
    ((stored, stores, *_),) = run.processes.rows.all(COUNTED)
    (space,) = httpx.get(f"{run.processes.replicas[0].url}/v1/spaces", timeout=60).json()["items"]
    shown, held = [space["stored_bytes"], space["stores"]], [int(stored), int(stores)]
    if shown != held:
        run.lose(f"usage: GET /v1/spaces shows {shown} bytes and stores, rows hold {held}")


async def check_rest(run: Run) -> dict[str, int]:
    """Check rows and bytes after all processes have ended, collect all garbage, and check the rest of the storage."""
    place, rows = run.processes.place, run.processes.rows
    database, storage = connect(place.database, "memory://"), place.open()
    try:
        run.check_counts()
        known = {key for (key,) in rows.all("SELECT key FROM objects UNION SELECT key FROM trash")}
        keys = {key.removesuffix(".sums") for key in await objects_in(storage)}
        for key in sorted(keys - known):
            run.lose(f"files: {key} has no row")
        for key in sorted({key for (key,) in rows.all(_REFERRED)} - keys):
            run.lose(f"files: {key} is referred to and is not there")
        for (name,) in rows.all(_DANGLING):
            run.lose(f"tags: {name} points at no store")
        for problem in rows.integrity_problems():
            run.lose(f"integrity: {problem}")
        for _ in range(3):  # bytes that were never published are deleted twice
            rows.run("UPDATE trash SET due = 0", "UPDATE objects SET unpublished = 0 WHERE unpublished IS NOT NULL")
            await collect_garbage(storage, database, grace_seconds=0, unfinished_seconds=0, delay_seconds=0)
        # Temporary files of killed processes, which are otherwise kept for a day: no process needs them any more.
        leftovers = await storage.collect_garbage(0)
        async with opened(storage, database=database) as stores:
            found = await visible(stores)
            for info in found.values():
                await assert_whole(stores, info)
        await assert_tidy(storage, database)
    except AssertionError as error:
        run.lose(f"storage: {error}")
        return {}
    finally:
        await storage.close()
        await database.close()
    return {
        "stores": len(found),
        "objects": len(rows.all("SELECT key FROM objects")),
        "shared_objects": len(rows.all(_USED_TWICE)),
        "temporary_files": leftovers,
    }


def check(run: Run) -> dict[str, Any]:
    """Check everything; return what was read back and what is left in the storage."""
    processes = run.processes
    urls = [replica.url for replica in processes.replicas] + ([processes.front] if processes.front else [])
    found = [read_back(run, url) for url in urls]
    with ExitStack() as life:
        for collector in processes.collectors:
            life.callback(collector.close)
    check_space(run)
    processes.close()
    left = asyncio.run(check_rest(run))
    with run.another_replica() as replica:
        found.append(read_back(run, replica.url))
    if any(states != found[0][1] for _, states in found):
        run.lose(f"contested: replicas differ: {[states for _, states in found]}")
    return {"read_back": dict(found[-1][0]), "left": left}

"""Mutants of stores, objects, tags, uploads and the collector; most are killed by the simulation.

The names begin with the number of the rule in the design that they break.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SIMULATION: Final = "simulation"
"""Stands for 200 histories in place of tests."""


class Mutant(NamedTuple):
    """A change of one place in a module, what it breaks, and the tests that see it."""

    rule: str
    module: str
    old: str
    new: str
    tests: str


_CATALOG: Final = "tests/catalog"
STORE_MUTANTS: Final = (
    Mutant(
        "1: references are looked for before a row is deleted", "catalog/collector.py",
        "held = _referenced(tx, picked)", "held = set[tuple[str, int]]()", SIMULATION,
    ),
    Mutant(
        "1: stores refer to objects by a foreign key", "catalog/migrations/0007.sql",
        """REFERENCES stores (space, id) ON DELETE CASCADE,
    FOREIGN KEY (space, object) REFERENCES objects (space, id)
) {composite};
CREATE INDEX store_objects_object""",
        """REFERENCES stores (space, id) ON DELETE CASCADE
) {composite};
CREATE INDEX store_objects_object""", SIMULATION,
    ),
    Mutant(
        "1: uploads refer to objects by a foreign key", "catalog/migrations/0007.sql",
        """REFERENCES uploads (space, id),
    FOREIGN KEY (space, object) REFERENCES objects (space, id)""",
        "REFERENCES uploads (space, id)", f"{_CATALOG}/test_uploads.py",
    ),
    Mutant(
        "1: the collector looks for references in uploads", "catalog/collector.py",
        'for table in ("store_objects", "upload_objects", "derived"):', 'for table in ("store_objects", "derived"):',
        SIMULATION,
    ),
    Mutant(
        "1: the collector looks for references in derived facts", "catalog/collector.py",
        'for table in ("store_objects", "upload_objects", "derived"):',
        'for table in ("store_objects", "upload_objects"):', f"{_CATALOG}/test_collector.py",
    ),
    Mutant(
        "1: the collector locks what it looks at", "catalog/collector.py",
        "FROM objects WHERE due <= :now\n        ORDER BY due LIMIT :most FOR UPDATE SKIP LOCKED",
        "FROM objects WHERE due <= :now\n        ORDER BY due LIMIT :most", f"{_CATALOG}/test_race.py",
    ),
    Mutant(
        "2: a reference that goes makes an object due", "catalog/objects.py",
        "UPDATE objects SET due = :now WHERE space = :space AND id = :id AND writer IS NULL",
        "UPDATE objects SET due = NULL WHERE space = :space AND id = :id AND :now > 0", SIMULATION,
    ),
    Mutant(
        "2: objects of a purged store become due", "catalog/collector.py",
        "    release_objects(tx, space, objects)\n", "", SIMULATION,
    ),
    Mutant(
        "2: objects of a derived fact of a purged store become due", "catalog/collector.py",
        '"object" if table in {"store_objects", "derived"}', '"object" if table == "store_objects"',
        SIMULATION,
    ),
    Mutant(
        "2: objects of an upload that ends become due", "catalog/uploads.py",
        "    release_objects(tx, space, objects)\n", "", SIMULATION,
    ),
    Mutant(
        "2: an object of a derived fact that is replaced becomes due", "catalog/derived.py",
        "release_objects(tx, self._space, [old[0]])", "pass", f"{_CATALOG}/test_derived.py",
    ),
    Mutant(
        "2: of two that derive a fact at once one object becomes due", "catalog/derived.py",
        "AND id = :store FOR UPDATE", "AND id = :store", f"{_CATALOG}/test_derived.py -k of_writers",
    ),
    Mutant(
        "2: xorbs of an upload that is removed become due", "catalog/uploads.py",
        '        if row.state == "gone":\n            await release_uploads(self._database)\n', "",
        f"{_CATALOG}/test_uploads.py -k xorb",
    ),
    Mutant(
        "2: objects of a writer that has ended become due", "catalog/objects.py",
        "SET writer = NULL, due = :now WHERE writer", "SET writer = NULL, due = :now + :now WHERE writer",
        SIMULATION,
    ),
    Mutant(
        "2: objects written in vain become due", "catalog/objects.py",
        "SET writer = NULL, due = :now WHERE space = :space AND id = :id AND writer = :writer",
        "SET writer = NULL, due = NULL + :now WHERE space = :space AND id = :id AND writer = :writer", SIMULATION,
    ),
    Mutant(
        "3: a store refers to what it shares", "catalog/stores.py",
        "sorted({*(each.id for each in new.own), *new.shared})", "sorted(each.id for each in new.own)", SIMULATION,
    ),
    Mutant(
        "3: an upload refers to what it shares", "catalog/uploads.py",
        "sorted({*(each.id for each in objects.own), *objects.shared})", "sorted(each.id for each in objects.own)",
        f"{_CATALOG}/test_uploads.py",
    ),
    Mutant(
        "4: objects are published by their writer", "catalog/objects.py",
        """SET writer = NULL, due = NULL, size = :size
        WHERE space = :space AND id = :id AND writer = :writer\"""",
        """SET writer = NULL, due = NULL, size = :size
        WHERE space = :space AND id = :id AND :writer <> ''\"""", f"{_CATALOG}/test_objects.py",
    ),
    Mutant(
        "4: a lost object is noticed", "catalog/objects.py", "writer=each.writer) != 1:", "writer=each.writer) == 9:",
        f"{_CATALOG}/test_objects.py",
    ),
    Mutant(
        "4: an object that is published is no longer due", "catalog/objects.py",
        "SET writer = NULL, due = NULL, size = :size", "SET due = 0, size = :size",
        f"{_CATALOG}/test_objects.py",
    ),
    Mutant(
        "4: what was published is not dropped", "catalog/objects.py",
        "WHERE space = :space AND id = :id AND writer = :writer\"\n            tx.many(sql, [row | {\"now\"",
        "WHERE space = :space AND id = :id AND :writer <> ''\"\n            tx.many(sql, [row | {\"now\"",
        f"{_CATALOG}/test_objects.py",
    ),
    Mutant(
        "4: a writer whose lease has ended reserves nothing", "catalog/objects.py",
        "            elif not _renew(tx, objects[0].writer):\n                return False\n", "", SIMULATION,
    ),
    Mutant(
        "4: a process forgets what it reserved under a lease that has ended", "stores/writing/reservations.py",
        "        if self._writer == writer:\n            self._writer = None\n            self._free.clear()\n",
        "        pass\n", SIMULATION,
    ),
    Mutant(
        "4: spaces that begin at once have one writer", "stores/writing/reservations.py",
        "async with self._beginning:", "async with asyncio.Lock():", f"{_CATALOG}/test_objects.py -k begin_at_once",
    ),
    Mutant(
        "5: keys are never used again", "catalog/objects.py",
        "[new_id() for _ in range(count)]", "[secrets.randbits(4) for _ in range(count)]", SIMULATION,
    ),
    Mutant(
        "6: bytes that were never published are deleted twice", "catalog/collector.py",
        '"passes": 2 if size is None else 1', '"passes": 1', SIMULATION,
    ),
    Mutant(
        "6: the second time is a day later", "catalog/collector.py", "TWICE_SECONDS: Final = 86_400.0",
        "TWICE_SECONDS: Final = 60.0", SIMULATION,
    ),
    Mutant(
        "7: bytes go some time after their row", "catalog/collector.py",
        "due = tx.now + int(delay_seconds * SECOND)", "due = tx.now", SIMULATION,
    ),
    Mutant(
        "7: bytes go after their row and not before", "stores/collection.py",
        "dropped = await table.drop_objects(delay_seconds)", "dropped = await table.drop_objects(0)", SIMULATION,
    ),
    Mutant(
        "7: trash is given to one collector at a time", "catalog/collector.py",
        "later=tx.now + int(_CLAIM_SECONDS * SECOND)", "later=tx.now", f"{_CATALOG}/test_collector.py -k at_once",
    ),
    Mutant(
        "8: a lease that has ended is doubted first", "catalog/collector.py",
        '"doubted < :before")):', '"1 = 1")):',
        SIMULATION,
    ),
    Mutant(
        "8: a lease is renewed", "stores/writing/reservations.py",
        "if writer is not None and not await self._table.renew(writer):", "if writer is None:", SIMULATION,
    ),
    Mutant(
        "8: a renewal ends the doubt", "catalog/objects.py", "SET expires = :expires, doubted = NULL",
        "SET expires = :expires", f"{_CATALOG}/test_collector.py",
    ),
    Mutant(
        "9: a tag is moved on its condition", "catalog/tags.py",
        "there and there.version, if_match)", "there and there.version, None)", SIMULATION,
    ),
    Mutant(
        "12: published bytes are charged", "catalog/stores.py",
        "tx, stored_bytes=size + new.held, ", "tx, stored_bytes=new.held, ", SIMULATION,
    ),
    Mutant(
        "12: bytes of uploads are charged", "catalog/uploads.py",
        "            self._account.charge(tx, stored_bytes=size)\n            return _row", "            return _row",
        SIMULATION,
    ),
    Mutant(
        "12: a removed store is discharged", "catalog/stores.py",
        "            self._account.charge(tx, stores=-1, logical_bytes=-size, entries=-len(tags))\n", "", SIMULATION,
    ),
    Mutant(
        "12: a restored store is charged", "catalog/stores.py",
        "            self._account.charge(tx, stores=count, logical_bytes=count * removed[4], entries=created)\n", "",
        SIMULATION,
    ),
    Mutant(
        "12: collected bytes are discharged", "catalog/collector.py",
        "    discharge(tx, sizes)\n", "    pass\n",
        SIMULATION,
    ),
    Mutant(
        "12: room is given back once it is charged", "stores/writing/new_objects.py",
        "self._room.give(self._sizes.pop(each.id, 0))", "self._sizes.pop(each.id, 0)", SIMULATION,
    ),
    Mutant(
        "12: room of what is given up is given back", "stores/writing/new_objects.py",
        "        self._room.give(sum(self._sizes.values()))\n", "", SIMULATION,
    ),
    Mutant(
        "12: a full space refuses", "catalog/spaces.py", "if stored_bytes and most_bytes and", "if False and",
        f"{_CATALOG}/test_spaces.py",
    ),
    Mutant(
        "12: the limit is exact", "catalog/spaces.py",
        'tx.all("SELECT 1 FROM spaces WHERE name = :space FOR NO KEY UPDATE", space=self.space)', "pass",
        f"{_CATALOG}/test_spaces.py",
    ),
    Mutant(
        "13: entity tags of tags are random", "catalog/tags.py", "version = secrets.token_bytes(16)",
        'version = b"always the same"', SIMULATION,
    ),
    Mutant(
        "18: digests are unique among stores that are there", "catalog/migrations/0007.sql",
        "ON stores (space, digest) WHERE deleted IS NULL", "ON stores (space, digest)", SIMULATION,
    ),
    Mutant(
        "18: restore finds a store that another request restored", "catalog/stores.py",
        "return None if there is None else RestoredRow(there)", "return None",
        f"{_CATALOG}/test_stores.py -k restorers",
    ),
    Mutant(
        "18: restore takes the last generation", "catalog/stores.py", "ORDER BY deleted DESC, id DESC LIMIT 1",
        "ORDER BY deleted, id LIMIT 1", f"{_CATALOG}/test_stores.py",
    ),
    Mutant(
        "18: a store can be restored within the grace", "catalog/collector.py",
        "before=tx.now - grace, limit=limit", "before=tx.now, limit=limit", SIMULATION,
    ),
    Mutant(
        "18: a store is purged after the grace", "catalog/collector.py",
        "total = await self._in_batches(mark)", "total = 0", SIMULATION,
    ),
    Mutant(
        "19: tags go with their store", "catalog/stores.py",
        'DELETE FROM names WHERE {TAGS} AND store = :digest RETURNING name', "SELECT name FROM names WHERE {TAGS} "
        "AND store = :digest", SIMULATION,
    ),
    Mutant(
        "19: tags come back with their store", "catalog/stores.py",
        'names = json.loads(removed[3] or "[]")', "names = []", f"{_CATALOG}/test_stores.py",
    ),
    Mutant(
        "19: a tag is pointed at a store that exists", "catalog/tags.py",
        "if not lock_store(tx, self._space, store):", "if False:", SIMULATION,
    ),
    Mutant(
        "19: a name is pointed at a store that exists", "catalog/repositories.py",
        "                require_store(tx, self._space, commit.store)\n", "", SIMULATION,
    ),
    Mutant(
        "20: a damaged store is replaced", "stores/ingest/publisher.py",
        "replaces = None if there is not None else done.row.id", "replaces = None", f"{_CATALOG}/test_stores.py",
    ),
    Mutant(
        "20: what replaces a damaged store is not counted twice", "catalog/stores.py",
        "count = 0 if replaced else 1", "count = 1", f"{_CATALOG}/test_stores.py",
    ),
    Mutant(
        "21: an upload is changed under its own epoch", "catalog/uploads.py", "AND epoch = :epoch RETURNING",
        "AND :epoch >= 0 RETURNING", SIMULATION,
    ),
    Mutant(
        "21: a writer that takes an upload raises its epoch", "catalog/uploads.py",
        "UPDATE uploads SET epoch = epoch + 1\n", "UPDATE uploads SET epoch = epoch\n", f"{_CATALOG}/test_uploads.py",
    ),
    Mutant(
        "21: an upload that has ended cannot be taken", "catalog/uploads.py",
        "SET state = 'gone', epoch = epoch + 1, modified", "SET state = 'gone', modified",
        f"{_CATALOG}/test_uploads.py",
    ),
    Mutant(
        "10: a lost answer to COMMIT is looked up", "catalog/database.py",
        "if unknown and await self._took_effect(change, background=background):", "if False:", SIMULATION,
    ),
    Mutant(
        "14: parts that are replaced go", "catalog/uploads.py",
        '"DELETE FROM upload_parts WHERE space = :space AND upload = :id AND n >= :n"',
        '"DELETE FROM upload_parts WHERE space = :space AND upload = :id AND n > 99 + :n"',
        f"{_CATALOG}/test_uploads.py",
    ),
)  # fmt: skip

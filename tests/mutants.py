"""Faults that are planted one by one in a copy of the sources, and the tests that must fail with each fault.

`make long` plants all of them. To plant some: `.venv/bin/python -m pytest -m long tests/repository/test_mutants.py -k
WORDS`, with words of the first column. Numbers there are those of the rules in the catalogue's design.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

SOURCES: Final = "service/protoslice"
SIMULATION: Final = "tests.stores.simulation --histories 200"
ON_POSTGRESQL: Final = "tests.stores.simulation --engine postgresql --histories 80"
_SECONDS: Final = 500
_CATALOG: Final = "tests/catalog"
_ACCESS: Final = " ".join(
    f"tests/server/auth/{name}"
    for name in (
        "test_tokens.py", "test_spaces.py", "test_signatures.py",
        "oidc/test_verification.py", "test_sessions.py", "test_closed.py",
        "test_permissions.py",
        "test_own_uploads.py", "test_quotas.py", "../../stores/test_quotas.py",
    )
)  # fmt: skip
"""The tests of permissions, the quick ones first."""


class Mutant(NamedTuple):
    """A replacement of one text in a file, the rule that the replacement breaks, and the tests that detect it."""

    rule: str
    file: str
    old: str
    new: str
    tests: str


def _access(file: str, old: str, new: str) -> Mutant:
    return Mutant(f"access: {file}: {new or old}", file, old, new, _ACCESS)


def _s3(file: str, old: str, new: str) -> Mutant:
    return Mutant(f"s3: {file}: {new or old}", file, old, new, "tests/server/registries/s3/test_signatures.py")


def survives(mutant: Mutant, folder: Path) -> str:
    """Plant a fault in a copy of the sources; return why no test counts as detecting it, or ""."""
    path = folder / SOURCES / mutant.file
    whole = path.read_text()
    if mutant.old not in whole:
        return f"{mutant.file} does not contain {mutant.old!r}: update tests/mutants.py"
    path.write_text(whole.replace(mutant.old, mutant.new, 1))
    program = (
        [] if mutant.tests.startswith("tests.") else ["pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
    )
    environment = os.environ | {"PYTHONPATH": f"{folder}/service{os.pathsep}{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *program, *mutant.tests.split()],
            cwd=folder, env=environment, capture_output=True, check=False, timeout=_SECONDS, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"the tests did not end within {_SECONDS} s"
    finally:
        path.write_text(whole)
    failed = re.search(r"^(?:(?:FAILED|ERROR) (\S+)|(seed \d+: .*))", done.stdout, re.MULTILINE)
    return "" if failed else f"no test failed: {(done.stdout + done.stderr)[-1000:]}"


MUTANTS: Final = (
    Mutant(
        "a name is moved on condition", "catalog/histories.py", ' AND version = :seen""",', '""",',
        f"{_CATALOG}/test_tags.py",
    ),
    Mutant(
        "a delivery is changed on condition", "catalog/webhooks.py", "AND dead = 0 AND due = :seen", "AND :seen > 0",
        f"{_CATALOG}/test_notices.py",
    ),
    Mutant(
        "a blob is moved on condition", "catalog/kept_files.py", " AND version = :seen", "",
        f"{_CATALOG}/test_artifacts.py",
    ),
    Mutant(
        "deadlocks are repeated", "database/transactions.py",
        "if loop.time() + wait > deadline or (unreachable and self._is_away):", "if True:",
        "tests/database/test_postgres.py",
    ),
    Mutant(
        "a change has an id", "database/transactions.py", "            tx.record(change, self.schema)\n", "",
        "tests/database/test_postgres.py",
    ),
    Mutant(
        "a lost answer is looked up", "database/transactions.py",
        "if unknown and await self._took_effect(change, background=background):", "if False:",
        "tests/database/test_postgres.py",
    ),
    Mutant(
        "the existing row is read after a conflict", "catalog/artifacts.py",
        "            row = tx.first(sql, **self._key)\n        if row is None:\n            raise",
        "        if row is None:\n            raise",
        f"{_CATALOG}/test_artifacts.py",
    ),
    Mutant(
        "entity tags of names are random", "catalog/histories.py", "version=secrets.token_bytes(16)",
        'version=b"always the same"', f"{_CATALOG}/test_tags.py",
    ),
    Mutant(
        "a statement has a deadline in SQLite", "database/sqlite.py", "lambda: time.monotonic() > end", "lambda: False",
        "tests/database/test_transactions.py -k interrupted",
    ),
    Mutant(
        "a statement has a deadline in PostgreSQL", "database/postgres.py", "SET LOCAL statement_timeout = {}",
        "SET LOCAL work_mem = '{}kB'", "tests/database/test_transactions.py -k interrupted",
    ),
    Mutant(
        "a full pool refuses", "database/transactions.py", "asyncio.timeout(WAIT_SECONDS)", "asyncio.timeout(60)",
        "tests/database/test_transactions.py -k full_lane",
    ),
    Mutant(
        "background work has connections", "database/sqlite.py", "self._lanes[background].run(self._reading",
        "self._lanes[False].run(self._reading", "tests/database/test_transactions.py -k full_lane",
    ),
    Mutant(
        "a foreign key has an index", "database/migrations/0005.sql",
        "CREATE INDEX names_manifest ON names (space, repository, manifest) WHERE manifest IS NOT NULL;\n", "",
        "tests/database/test_schema.py",
    ),
    Mutant(
        "only the job that fails is rolled back", "database/sqlite.py", 'connection.execute("ROLLBACK TO job")', "pass",
        f"tests/database/test_transactions.py {_CATALOG}/test_repositories.py",
    ),
    Mutant(
        "writes wait for other processes", "database/sqlite_file.py", "    fcntl.flock(file, fcntl.LOCK_EX)\n", "",
        "tests/database/test_sqlite.py",
    ),
    Mutant(
        "a write that has not begun is refused", "database/sqlite.py", "if job.done.cancel():", "if False:",
        "tests/database/test_sqlite.py",
    ),
    Mutant(
        "a file that was removed is noticed", "database/sqlite_file.py",
        "if _identity(self._name) != self._opened:", "if False:",
        "tests/database/test_sqlite.py",
    ),
    Mutant(
        "network file systems are refused", "database/sqlite_file.py", "if _NETWORK.fullmatch(kind):", "if False:",
        "tests/database/test_sqlite.py",
    ),
    Mutant(
        "a full disk of the database takes nothing in", "serving/shared.py",
        "if least and (free := self.database.free_bytes()) is not None and free < least:", "if False:",
        "tests/stores/test_faults.py",
    ),
    Mutant(
        "foreign keys are enforced", "database/sqlite_file.py", '"foreign_keys = ON"', '"foreign_keys = OFF"',
        f"tests/database/test_transactions.py {_CATALOG}/test_repositories.py",
    ),
    Mutant(
        "a blob that is wanted never expires", "artifacts/repository.py", "if blob.wanted and blob.store is None:",
        "if False:", "tests/artifacts",
    ),
    Mutant(
        "files whose uploads are gone go", "catalog/kept_files.py", "WHERE upload IS NOT NULL AND updated",
        "WHERE store IS NOT NULL AND updated", f"{_CATALOG}/test_repositories.py",
    ),
    Mutant(
        "a delivery is written with its change", "catalog/webhooks.py", "    for hook in wanted:\n",
        "    for hook in ():\n", f"{_CATALOG}/test_notices.py",
    ),
    Mutant(
        "a folder that changed meanwhile stays noted", "catalog/mlflow.py", "AND name = :name AND changed = :changed",
        "AND name = :name AND :changed > 0", f"{_CATALOG}/test_artifacts.py",
    ),
    Mutant(
        "warm reads execute no statement", "server/auth/authenticator.py", "asked + min(KNOWN_SECONDS, left)", "asked",
        "tests/server/test_statements.py",
    ),
    Mutant(
        "1: references are looked for before a row is deleted", "catalog/collector.py",
        "held = _referenced(tx, picked)", "held = set[tuple[str, int]]()", SIMULATION,
    ),
    Mutant(
        "1: stores refer to objects by a foreign key", "database/migrations/0007.sql",
        """REFERENCES stores (space, id) ON DELETE CASCADE,
    FOREIGN KEY (space, object) REFERENCES objects (space, id)
) {composite};
CREATE INDEX store_objects_object""",
        """REFERENCES stores (space, id) ON DELETE CASCADE
) {composite};
CREATE INDEX store_objects_object""", SIMULATION,
    ),
    Mutant(
        "1: uploads refer to objects by a foreign key", "database/migrations/0007.sql",
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
        "FROM objects WHERE due <= :now\n        ORDER BY due LIMIT :most", f"{_CATALOG}/test_objects.py",
    ),
    Mutant(
        "2: a reference that goes makes an object due", "catalog/objects.py",
        "UPDATE objects SET due = :now WHERE space = :space AND id = :id AND unpublished IS NULL",
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
        "release_objects(tx, self._space, [old[0]])", "pass", f"{_CATALOG}/test_manifest.py",
    ),
    Mutant(
        "2: of two that derive a fact at once one object becomes due", "catalog/derived.py",
        "AND id = :store FOR UPDATE", "AND id = :store", f"{_CATALOG}/test_manifest.py -k of_writers",
    ),
    Mutant(
        "2: xorbs of an upload that is removed become due", "catalog/uploads.py",
        '        if upload.state == "gone":\n            await release_uploads(self._database)\n', "",
        f"{_CATALOG}/test_uploads.py -k xorb",
    ),
    Mutant(
        "2: objects written in vain become due", "catalog/objects.py",
        "SET unpublished = NULL, due = :now WHERE {_UNPUBLISHED}",
        "SET unpublished = NULL, due = NULL + :now WHERE {_UNPUBLISHED}", SIMULATION,
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
        "4: an object that was collected is not published", "catalog/objects.py",
        "each.id, size=each.size) != 1:", "each.id, size=each.size) == 9:", f"{_CATALOG}/test_objects.py",
    ),
    Mutant(
        "4: an object that is published does not expire", "catalog/objects.py",
        "SET unpublished = NULL, size = :size", "SET size = :size", f"{_CATALOG}/test_objects.py",
    ),
    Mutant(
        "4: what was published is not dropped", "catalog/objects.py",
        'AND id = :id AND unpublished IS NOT NULL"', 'AND id = :id"', f"{_CATALOG}/test_objects.py",
    ),
    Mutant(
        "4: an upload does not begin with objects that expire soon", "catalog/new_objects.py",
        "monotonic() < self.at + USABLE_SECONDS", "True", f"{_CATALOG}/test_objects.py -k long_ago",
    ),
    Mutant(
        "4: an object that is not published expires", "catalog/collector.py",
        "SET unpublished = NULL, due = :now WHERE unpublished <= :before",
        "SET unpublished = NULL, due = :now WHERE unpublished < 0 * :before", SIMULATION,
    ),
    Mutant(
        "4: what takes less than a day does not expire", "catalog/collector.py",
        "before=tx.now - unfinished, limit=limit,", "before=tx.now, limit=limit,",
        "tests/stores/collection/test_garbage.py -k almost_a_day",
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
        "9: a tag is moved on its condition", "catalog/tags.py",
        "there and there.etag, if_match)", "there and there.etag, None)", SIMULATION,
    ),
    Mutant(
        "9: a tag is locked while its condition is compared", "catalog/tags.py",
        "AND name = :name FOR UPDATE", "AND name = :name", ON_POSTGRESQL,
    ),
    Mutant(
        "12: published bytes are charged", "catalog/stores.py",
        "tx, stored_bytes=size + new.held, ", "tx, stored_bytes=new.held, ", SIMULATION,
    ),
    Mutant(
        "12: bytes of uploads are charged", "catalog/uploads.py",
        "            self._usage.add(tx, stored_bytes=size)\n            return done", "            return done",
        SIMULATION,
    ),
    Mutant(
        "12: a removed store is discharged", "catalog/stores.py",
        "            self._usage.add(tx, stores=-1, logical_bytes=-size, entries=-len(tags))\n", "", SIMULATION,
    ),
    Mutant(
        "12: a restored store is charged", "catalog/stores.py",
        "            self._usage.add(tx, stores=count, logical_bytes=count * removed[4], entries=created)\n", "",
        SIMULATION,
    ),
    Mutant(
        "12: collected bytes are discharged", "catalog/collector.py",
        "    discharge(tx, sizes)\n", "    pass\n",
        SIMULATION,
    ),
    Mutant(
        "12: published bytes count once", "catalog/new_objects.py",
        "self._settle(self._sizes.pop(each.id, 0))", "self._sizes.pop(each.id, 0)",
        "tests/stores/test_quotas.py -k twice",
    ),
    Mutant(
        "12: bytes of a request count before they are published", "catalog/new_objects.py",
        "stored_bytes=self._unpublished + size", "stored_bytes=size", "tests/stores/test_quotas.py -k next_ones",
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
        "18: digests are unique among stores that are there", "database/migrations/0007.sql",
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
        "19: a name is pointed at a store that exists", "catalog/histories.py",
        "                require_store(tx, space, commit.store)\n", "", SIMULATION,
    ),
    Mutant(
        "cache: its size is looked at while it grows", "serving/disk_cache.py",
        "if self._added * 16 > self._room:", "if False:", "tests/serving/test_cache.py",
    ),
    Mutant(
        "results: all of them are within one bound", "concurrency/results.py",
        "while self.weight > self._max_bytes and", "while False and", "tests/concurrency/test_results.py",
    ),
    Mutant(
        "results: the newest of each kind stays", "concurrency/results.py",
        "if former is not None and former != key:", "self._use(key)\n        if former is not None and former != key:",
        "tests/concurrency/test_results.py",
    ),
    Mutant(
        "results: work stops when its last caller leaves", "concurrency/results.py",
        "cancellable=cancellable)", "cancellable=False)", "tests/concurrency/test_results.py",
    ),
    Mutant(
        "20: a damaged store is replaced", "ingest/publishing.py",
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
        "10: a lost answer to COMMIT is looked up", "database/transactions.py",
        "if unknown and await self._took_effect(change, background=background):", "if False:", SIMULATION,
    ),
    Mutant(
        "14: parts that are replaced go", "catalog/uploads.py",
        '"DELETE FROM upload_parts WHERE space = :space AND upload = :id AND n >= :n"',
        '"DELETE FROM upload_parts WHERE space = :space AND upload = :id AND n > 99 + :n"',
        f"{_CATALOG}/test_uploads.py",
    ),
    Mutant(
        "words of Upload-Metadata take precedence over the query", "server/bodies/new_store.py",
        "words.get(name) or getattr(self, name) or None", "getattr(self, name) or words.get(name) or None",
        "tests/server/bodies/resumable/test_tus.py",
    ),
    Mutant(
        "options in JSON are those of a query", "server/bodies/new_store.py", "            strict=self.strict,\n", "",
        "tests/server/bodies/test_options.py",
    ),
    Mutant(
        "a body with a checksum is compared", "server/bodies/tus.py",
        "return None if digest is None else Checksum(hashlib.sha256(), digest)", "return None",
        "tests/server/bodies/resumable/test_tus.py",
    ),
    Mutant(
        "client: a file that arrived damaged is sent again in parts with digests", "client/upload/resumable.py",
        "self._checked, self._there = True, 0", "self._there = 0", "tests/client/upload/test_resumable.py",
    ),
    Mutant(
        "client: bytes that are sent again are hashed once", "client/upload/resumable.py",
        "if at > self._hashed:", "if True:", "tests/client/upload/test_resumable.py",
    ),
    Mutant(
        "client: parts that are too long for a proxy stay shorter", "client/upload/resumable.py",
        "self._most = self._longest if too_long else self._most", "pass", "tests/client/upload/test_resumable.py",
    ),
    Mutant(
        "client: a base is used whatever the beginning of the file is", "client/upload/push.py",
        "if not places and not has_base:", "if not places:", "tests/client/upload/test_push.py",
    ),
    Mutant(
        "client: what was downloaded has the digest of the service", "client/download/files.py",
        "if facts.sha256 is not None and digest != facts.sha256.hex():", "if False:",
        "tests/client/download/test_download.py",
    ),
    Mutant(
        "command line: JSON has times as the service has them", "cli/tables.py",
        "return utc(value)", "return value.isoformat()", "tests/cli/test_safety.py -k print",
    ),
    Mutant(
        "command line: a list that is cut says so", "cli/tables.py",
        "limit + 1 if limit else None", "limit or None", "tests/cli/test_safety.py -k print",
    ),
    Mutant(
        "command line: an interrupted command leaves no temporary file", "local_files.py",
        "            os.unlink(temporary)\n", "            pass\n", "tests/cli/test_safety.py -k half_written",
    ),
    Mutant(
        "command line: changes in the database name the user", "cli/options.py",
        "        if audited:\n", "        if False:\n", "tests/cli/test_transcripts.py -k access:",
    ),
    Mutant(
        "client: credentials stay at their origin", "client/http/connection.py",
        "if _origin(following.url) != _origin(request.url):", "if False:", "tests/client/http/test_redirects.py",
    ),
    _access("server/auth/permissions.py", "or Scope.ADMIN in self.scopes", "or Scope.READ in self.scopes"),
    _access("server/auth/permissions.py", "if not self.gives(scope):", "if False:"),
    _access("server/auth/permissions.py", "if not self.tags or scope is Scope.READ:", "if True:"),
    _access("server/auth/permissions.py", "return scope not in {Scope.DELETE, Scope.ADMIN}", "return True"),
    _access("server/auth/permissions.py", "return all(any(pattern", "return any(any(pattern"),
    _access("server/auth/permissions.py", "grant.space in (space, EVERY_SPACE) and grant.scopes", "grant.scopes"),
    _access(
        "server/auth/permissions.py", "grant.space in (space, EVERY_SPACE) and grant.scopes", "grant.space == space",
    ),
    _access("server/auth/permissions.py", " and grant.scopes:", ":"),
    _access(
        "server/auth/authenticator.py", "if not self.closed or rule.scope is None:",
        "if not self.closed or rule.scope in {None, Scope.READ}:",
    ),
    Mutant(
        "access: a route of FastAPI without a rule does not start", "server/routing.py",
        'raise RuntimeError(f"{route!r} is not a Route: its access would not be checked")', "continue",
        "tests/server/auth/test_permissions.py",
    ),
    Mutant(
        "access: views ask by their rule", "server/api/view_router.py", "admit(scope, fields, found.view.rule)",
        'admit(scope, fields, scope["app"].rules["GET /livez"])', "tests/server/auth/test_permissions.py",
    ),
    _access("server/auth/signatures.py", 'or not is_own_page(scope["method"], fields)', ""),
    _access("server/auth/signatures.py", "values[0] if len(values) == 1 else None", "values[0] if values else None"),
    _access(
        "server/auth/signatures.py", "int(min(wanted, time.time() + self.seconds - _SKEW_SECONDS))",
        "int(wanted)",
    ),
    _access(
        "server/auth/oidc/sign_in.py", "if not hmac.compare_digest(begun.state",
        "if False and hmac.compare_digest(begun.state",
    ),
    _access("server/auth/oidc/sign_in.py", "if begun.end <= time.time():", "if False:"),
    _access("server/auth/oidc/sign_in.py", 'if said.get("iss", self.issuer.url) != self.issuer.url:', "if False:"),
    _access("server/auth/oidc/sign_in.py", "if not isinstance(nonce, str) or not", "if False and not"),
    _access("server/auth/oidc/sign_in.py", "if self.client not in (", "if False and self.client not in ("),
    _access("server/auth/oidc/sign_in.py", 'if claims.get("azp", self.client) != self.client:', "if False:"),
    _access("server/auth/oidc/verification.py", "or identity.end <= time.time()", ""),
    _access("server/auth/oidc/verification.py", "or await known.keys.find(identity.key_id) is None", ""),
    _access("server/auth/oidc/verification.py", "if id in identity.rules", ""),
    _access("server/auth/authenticator.py", "EVERY_SPACE if rule.everywhere else space", "space"),
    _access("server/auth/authenticator.py", "auth.require_visible()", "pass"),
    _access("server/auth/authenticator.py", "rule.tags(scope, fields, parameters)", "()"),
    _access("server/auth/permissions.py", "if self.reads:", "if False:"),
    _access(
        "server/registries/hub/repositories.py",
        'services.auth.require(Scope.WRITE, tags=[name.removeprefix("datasets/")])', "pass",
    ),
    _access(
        "server/auth/authenticator.py",
        "found is None or decide(found.principal, space, Scope.READ) is not Decision.ALLOWED", "found is None",
    ),
    _access("server/auth/authenticator.py", "if kept is None or kept[0] != credential:", "if kept is None:"),
    _access("server/auth/authenticator.py", "if found is not None and found.until > time.monotonic() else None", ""),
    _access(
        "server/auth/authenticator.py", "if signature in self._proven:\n            return signature.is_valid",
        "if self._proven:\n            return True",
    ),
    _access(
        "server/auth/authenticator.py", "found is not None and found.signed(signature) else None",
        "found is not None else None",
    ),
    _access(
        "server/auth/authenticator.py",
        "self._callers, self._signers = CredentialCache(), CredentialCache()\n        return",
        "self._callers = self._signers = CredentialCache()\n        return",
    ),
    _access(
        "server/auth/authenticator.py", "if not any(signature.proves(key) for key in self._keys)",
        "if not self._keys",
    ),
    _access("server/auth/authenticator.py", "record.expires.timestamp() - time.time()", "KNOWN_SECONDS"),
    _access("server/auth/authenticator.py", "verified.expires - time.time()", "KNOWN_BY_JWT_SECONDS"),
    _access("server/auth/authenticator.py", "if len(authorization) > _LONGEST:", "if False:"),
    _access("server/auth/signatures.py", "and self.is_valid", ""),
    _access(
        "server/auth/signatures.py", "return 0 < self.expires - time.time() <= self.purpose.seconds",
        "return True",
    ),
    _access(
        "server/auth/signatures.py", "return 0 < self.expires - time.time() <= self.purpose.seconds",
        "return time.time() < self.expires",
    ),
    _access("server/auth/signatures.py", 'f"protoslice signed {purpose}".encode()', 'b""'),
    _access("server/auth/tokens.py", "signer_key(service_key, ", 'signer_key(b"", '),
    _access("server/auth/signatures.py", 'b"GET " + target[:-_PROOF]', 'b"GET " + target.partition(b"?")[0]'),
    _access("server/auth/signatures.py", '"GET" if scope["method"] == "HEAD" else scope["method"]', '"GET"'),
    _access("server/auth/tokens.py", "if record is not None and token.proves(record.hash) else None", ""),
    _access("server/auth/tokens.py", "return None if record is None or record.expired else record", "return record"),
    _access("server/auth/tokens.py", "id = :id AND space = :space", "id = :id AND :space <> ''"),
    _access(
        "server/auth/tokens.py", "return hmac.compare_digest(self.hash.encode(), kept.encode())",
        "return bool(kept)",
    ),
    _access("server/auth/tokens.py", "if _checksum(body) != check:", "if False:"),
    _access("server/auth/authenticator.py", "if rule.signed:", "if True:"),
    _access("server/auth/spaces.py", "(/spaces/([a-z0-9][a-z0-9-]{0,62}))(/.*)", "(/spaces/([^/]{1,63}))(/.*)"),
    _access(
        "server/auth/permissions.py",
        'return (*from_query(scope, fields, parameters), *metadata.get("tag", "").split())',
        "return from_query(scope, fields, parameters)",
    ),
    _access("server/auth/permissions.py", 'return (unquote(parameters["name"]),)', 'return (parameters["name"],)'),
    _access("server/auth/tokens.py", "WHERE space = :space AND id > :after", "WHERE :space <> '' AND id > :after"),
    _access("server/auth/authenticator.py", "asked + min(KNOWN_SECONDS, left)", "asked + KNOWN_SECONDS"),
    _access("server/auth/signatures.py", 'scope.get("raw_path") or scope["path"].encode()', 'scope["path"].encode()'),
    _access("catalog/uploads.py", "self._client not in {None, found[0].client}", "False"),
    _access("server/services.py", "None if self.auth.key is None else pseudonym(self.auth.key)", "None"),
    _access("server/request/failures.py", "if failure.problem.refuses:", "if False:"),
    _access("catalog/spaces.py", "type(value) is not int or not 0", "not 0"),
    _access("server/auth/oidc/verification.py", "if algorithm not in issuer.algorithms:", "if False:"),
    _s3("server/registries/s3/signatures.py", "found |= hmac.compare_digest(made, self.proof)", "found = True"),
    _s3("server/registries/s3/signatures.py", "if not in_query and abs(now - begins) > _SKEW_SECONDS:", "if False:"),
    _s3("server/registries/s3/signatures.py", "if begins > now + _SKEW_SECONDS:", "if False:"),
    _s3("server/registries/s3/signatures.py", "_LONGEST_SECONDS: Final = 604_800", "_LONGEST_SECONDS: Final = 999_999"),
    _s3("server/registries/s3/signatures.py", "or scope[0] != day or", "or"),
    _s3("server/registries/s3/signatures.py", "if region and scope[1] != region:", "if False:"),
    _s3("server/registries/s3/signatures.py", 'scope[2:] != ["s3", "aws4_request"]', 'scope[3:] != ["aws4_request"]'),
    _s3("server/registries/s3/signatures.py", " or not _REGION.fullmatch(scope[1])", ""),
    _s3("server/registries/s3/signatures.py", 'if sent[:6] == b"x-amz-" and sent not in names.values():', "if False:"),
    _s3("server/registries/s3/signatures.py", ';".join(sorted(names)) != signed', ';".join(names) != signed'),
    _s3("server/registries/s3/signatures.py", "len(found) < len(pairs) or ", ""),
    _s3("server/registries/s3/signatures.py", "if in_header and in_query:", "if False:"),
    _s3("server/registries/s3/requests.py", 'fields.pop(b"authorization", None)', "pass"),
    _s3("server/registries/s3/quick.py", "return _DATES.isdisjoint(fields)", "return True"),
    _s3(
        "server/registries/s3/routes.py",
        'chosen["content-disposition"] = "attachment" +',
        'chosen["content-disposition"] = "inline" +',
    ),
    _s3(
        "server/registries/s3/routes.py",
        "if chosen and services.state.authenticator.closed and request.scope.get(SIGNATURE) is None:",
        "if False:",
    ),
    _s3("server/auth/authenticator.py", " or decide(found.principal, space, Scope.READ) is not Decision.ALLOWED", ""),
    _s3(
        "server/auth/authenticator.py",
        "return found if found is not None and found.until > time.monotonic() else None",
        "return found",
    ),
    Mutant(
        "rows of a read-only storage stay", "database/transactions.py",
        "if tx.changed & OF_STORAGE and", "if False and",
        "tests/server/auth/test_access_mode.py",
    ),
    Mutant(
        "no object is written in a read-only storage", "serving/shared.py",
        "        self.database.check_writable()\n", "", "tests/server/auth/test_access_mode.py",
    ),
    Mutant(
        "a store that was sent again is opened by its own row", "serving/opened.py",
        "(*place, manifest.row), open)", "(*place, 0), open)", "tests/serving/test_cached_stores.py",
    ),
    Mutant(
        "operations: a worker whose client left is killed", "server/rendering.py",
        "            await _kill(process)\n            if isinstance", "            if isinstance",
        "tests/server/test_rendering.py",
    ),
    Mutant(
        "operations: a setting and its file are not both set", "server/settings.py",
        "sorted(variables & files.keys())", "sorted(variables & set())", "tests/server/test_settings.py",
    ),
    Mutant(
        "operations: a removed setting is accepted", "server/settings.py",
        "known = _OTHERS | _REMOVED | ", "known = _OTHERS | ", "tests/server/test_settings.py",
    ),
    Mutant(
        "operations: requests count by status", "server/telemetry/metrics.py",
        "context.method, context.status)", "context.method, 200)", "tests/server/telemetry/test_metrics.py",
    ),
    Mutant(
        "operations: background work ends with its context", "concurrency/chores.py",
        "            task.cancel()\n", "            task.done()\n", "tests/concurrency/test_executor.py --timeout 20",
    ),
    Mutant(
        "transport: a body behind an offer of another protocol is read", "server/transport/protocol.py",
        'if b"upgrade" in head.lower()', "if False",
        "tests/server/transport/test_connections.py::test_a_head_may_be_cut_anywhere",
    ),
    Mutant(
        "transport: what cannot become a head is refused at once", "server/transport/protocol.py",
        "not data[start : start + 1].isupper() or ", "",
        "tests/server/transport/test_connections.py::test_what_cannot_become_a_head_is_refused_at_once",
    ),
    Mutant(
        "transport: the rest of a long head is read", "server/transport/protocol.py",
        "waits = self._scheduled or not self._in_head or", "waits = True or not self._in_head or",
        "tests/server/transport/test_connections.py::test_a_long_head_may_come_in_pieces",
    ),
    Mutant(
        "transport: the body of CONNECT is no request", "server/transport/protocol.py",
        "self._over is not None or self.parser.should_upgrade()", "self._over is not None",
        "tests/server/transport/test_connections.py::test_the_body_of_connect_is_no_request",
    ),
    Mutant(
        "transport: one answer comes of one callback", "server/transport/protocol.py",
        "            if self._at > start:\n                self._schedule()\n",
        "            if self._at > start:\n                self._parse_buffered()\n",
        "tests/server/transport/test_pacing.py::test_one_answer_comes_of_one_callback",
    ),
    Mutant(
        "transport: a plan goes with its store", "server/transport/fastpath.py",
        "ref(store, self._forget)", "ref(store)",
        "tests/server/transport/test_fastpath.py::test_a_plan_goes_with_its_store",
    ),
    Mutant(
        "http: every answer has a policy for referrers", "server/http/security.py",
        "given.append(_SAME_ORIGIN if is_page else _NO_REFERRER)", "pass",
        "tests/server/http/test_safe_headers.py",
    ),
    Mutant(
        "cli: pieces of a local file are not fetched", "cli/models/compared.py",
        "return self._fetched(start, end) if local is None else local", "return self._fetched(start, end)",
        "tests/cli/verbs/test_diff.py -k not_fetched",
    ),
    Mutant(
        "cli: fetched blocks are kept", "cli/models/compared.py",
        "found = {number: blocks.get((self, number)) for number", "found = {number: None for number",
        "tests/cli/verbs/test_diff.py -k not_fetched",
    ),
    Mutant(
        "cli: a chunk is digested with what is not in the root", "cli/commands/verify.py",
        "hashes[extent.chunk].update(extent.before)", "pass", "tests/cli/verbs/test_verify.py -k sound_store",
    ),
    Mutant(
        "cli: the root is read once", "cli/commands/verify.py", "            digests[number] = digest.hexdigest()",
        "            del digest", "tests/cli/verbs/test_verify.py -k read_once",
    ),
    Mutant(
        "http: a proxy that names no client is found", "server/request/clients.py",
        'return "silent" if client_of(headers, self._is_trusted) is None else "trusted"', 'return "trusted"',
        "tests/server/http/test_public_url.py",
    ),
    Mutant(
        "doctor: links that lead elsewhere are found", "cli/commands/probes.py", "if same_origin(url, target.url):",
        "if url:", "tests/cli/verbs/test_doctor.py -k rename",
    ),
    Mutant(
        "cli: what is not found has an exit code", "cli/errors.py", "NotFound: ExitCode.NOT_FOUND,",
        "NotFound: ExitCode.FAILED,", "tests/cli/test_transcripts.py -k errors:",
    ),
    Mutant(
        "cli: a list of tensors has a column of shapes", "cli/commands/tensors.py",
        '        "shape": lambda row: shape_text(row.shape),\n        "size"', '        "size"',
        "tests/cli/test_transcripts.py -k tensors:",
    ),
    Mutant(
        "cli: JSON names the tags that were not restored", "cli/commands/stores.py",
        '| {"tags_taken": restored.tags_taken}', '| {"taken": restored.tags_taken}',
        "tests/cli/test_transcripts.py -k stores:",
    ),
    Mutant(
        "cli: the removal of a tag says what becomes of its store", "cli/commands/stores.py",
        'note(f"store {removal.store.id[:12]} is kept; {named}")', "pass", "tests/cli/test_transcripts.py -k stores:",
    ),
    Mutant(
        "cli: a sample has a seed", "cli/commands/records.py", "tuple(value or ()), sample, seed)",
        "tuple(value or ()), sample, 0)", "tests/cli/test_transcripts.py -k records:",
    ),
)  # fmt: skip

"""Mutants of the catalogue: each is planted in a copy of the sources, and its test has to kill it.

Run by hand, as it takes minutes: `.venv/bin/python -m tests.catalog.mutants`, with words of rules to plant only some.
The exit code is 1 with survivors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.catalog.store_mutants import SIMULATION, STORE_MUTANTS, Mutant

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = "service/protoslice"
_SECONDS: Final = 300
_HISTORIES: Final = 200


_CATALOG: Final = "tests/catalog"
MUTANTS: Final = (
    Mutant(
        "a name is moved on condition", "catalog/repositories.py", "\n                        AND version = :seen", "",
        f"{_CATALOG}/test_repositories.py",
    ),
    Mutant(
        "a letter is changed on condition", "catalog/letters.py", "AND dead = 0 AND due = :seen", "AND :seen > 0",
        f"{_CATALOG}/test_letters.py",
    ),
    Mutant(
        "a blob is moved on condition", "catalog/kept_files.py", " AND version = :seen", "",
        f"{_CATALOG}/test_artifacts.py",
    ),
    Mutant(
        "deadlocks are repeated", "catalog/database.py",
        "if loop.time() + wait > deadline or (unreachable and self._is_away):", "if True:",
        f"{_CATALOG}/test_postgres.py",
    ),
    Mutant(
        "a change has an id", "catalog/database.py", "            tx.record(change, self.schema)\n", "",
        f"{_CATALOG}/test_postgres.py",
    ),
    Mutant(
        "a lost answer is looked up", "catalog/database.py",
        "if unknown and await self._took_effect(change, background=background):", "if False:",
        f"{_CATALOG}/test_postgres.py",
    ),
    Mutant(
        "the existing row is read after a conflict", "catalog/artifacts.py",
        "            row = tx.first(sql, **self._key)\n        if row is None:\n            raise",
        "        if row is None:\n            raise",
        f"{_CATALOG}/test_artifacts.py",
    ),
    Mutant(
        "entity tags of names are random", "catalog/repositories.py", "version = secrets.token_bytes(16)",
        'version = b"always the same"', f"{_CATALOG}/test_repositories.py",
    ),
    Mutant(
        "a statement has a deadline in SQLite", "catalog/sqlite.py", "lambda: time.monotonic() > end", "lambda: False",
        f"{_CATALOG}/test_database.py -k interrupted",
    ),
    Mutant(
        "a statement has a deadline in PostgreSQL", "catalog/postgres.py", "SET LOCAL statement_timeout = {}",
        "SET LOCAL work_mem = '{}kB'", f"{_CATALOG}/test_database.py -k interrupted",
    ),
    Mutant(
        "a full pool refuses", "catalog/database.py", "asyncio.timeout(WAIT_SECONDS)", "asyncio.timeout(60)",
        f"{_CATALOG}/test_database.py -k full_lane",
    ),
    Mutant(
        "background work has connections", "catalog/sqlite.py", "self._lanes[background].run(self._reading",
        "self._lanes[False].run(self._reading", f"{_CATALOG}/test_database.py -k full_lane",
    ),
    Mutant(
        "a foreign key has an index", "catalog/migrations/0005.sql",
        "CREATE INDEX names_manifest ON names (space, repository, manifest) WHERE manifest IS NOT NULL;\n", "",
        f"{_CATALOG}/test_schema.py",
    ),
    Mutant(
        "only the job that fails is rolled back", "catalog/sqlite.py", 'connection.execute("ROLLBACK TO job")', "pass",
        f"{_CATALOG}/test_database.py {_CATALOG}/test_repositories.py",
    ),
    Mutant(
        "writes wait for other processes", "catalog/sqlite.py", "    fcntl.flock(file, fcntl.LOCK_EX)\n", "",
        f"{_CATALOG}/test_sqlite.py",
    ),
    Mutant(
        "a write that has not begun is refused", "catalog/sqlite.py", "if job.done.cancel():", "if False:",
        f"{_CATALOG}/test_sqlite.py",
    ),
    Mutant(
        "a file that was removed is noticed", "catalog/sqlite.py",
        "if _identity(self._name) != self._opened:", "if False:",
        f"{_CATALOG}/test_sqlite.py",
    ),
    Mutant(
        "network file systems are refused", "catalog/sqlite.py", "if _NETWORK.fullmatch(kind):", "if False:",
        f"{_CATALOG}/test_sqlite.py",
    ),
    Mutant(
        "a full disk takes the ballast", "catalog/sqlite.py", "if not self.drop():", "if True:",
        f"{_CATALOG}/test_sqlite.py",
    ),
    Mutant(
        "foreign keys are enforced", "catalog/sqlite.py", '"foreign_keys = ON"', '"foreign_keys = OFF"',
        f"{_CATALOG}/test_database.py {_CATALOG}/test_repositories.py",
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
        "a letter is written with its change", "catalog/letters.py", "    for hook in wanted:\n",
        "    for hook in ():\n", f"{_CATALOG}/test_letters.py",
    ),
    Mutant(
        "a folder that changed meanwhile stays noted", "catalog/drafts.py", "AND name = :name AND changed = :changed",
        "AND name = :name AND :changed > 0", f"{_CATALOG}/test_drafts.py",
    ),
    Mutant(
        "warm reads execute no statement", "server/access/credentials.py", "asked + min(KNOWN_SECONDS, left)", "asked",
        "tests/server/test_statements.py",
    ),
)  # fmt: skip


def killer(mutant: Mutant, folder: Path) -> str | None:
    """Return the test that fails with a mutant, or None; raise `ValueError` if its place is not found."""
    path = folder / SOURCES / mutant.module
    whole = path.read_text()
    if mutant.old not in whole:
        raise ValueError(f"{mutant.module} has no {mutant.old!r}: update the list")
    path.write_text(whole.replace(mutant.old, mutant.new, 1))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "--no-header",
        "-p",
        "no:cacheprovider",
        *mutant.tests.split(),
    ]
    if mutant.tests == SIMULATION:
        command = [sys.executable, "-m", "tests.stores.simulation", "--histories", str(_HISTORIES)]
    environment = os.environ | {"PYTHONPATH": f"{folder}/service{os.pathsep}{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, check=False, timeout=_SECONDS, text=True,
        )  # fmt: skip
        if done.returncode == 0:
            return None
        failed = re.search(r"^(?:(?:FAILED|ERROR) (\S+)|(seed \d+: .*))", done.stdout, re.MULTILINE)
        return failed[0][:160] if failed else (done.stdout + done.stderr)[-300:]
    except subprocess.TimeoutExpired:
        return f"no end within {_SECONDS} s"
    finally:
        path.write_text(whole)


def main(rules: list[str]) -> None:
    """Plant every mutant, or those whose rule has one of these words; print the test that kills each."""
    chosen = [mutant for mutant in MUTANTS + STORE_MUTANTS if not rules or any(word in mutant.rule for word in rules)]
    alive = 0
    with tempfile.TemporaryDirectory(prefix="protoslice-mutants-") as name:
        folder = Path(name)
        for part in ("service", "tests", "pyproject.toml"):
            place = ROOT / part
            copy = shutil.copytree if place.is_dir() else shutil.copy
            copy(place, folder / part)
        for mutant in chosen:
            found = killer(mutant, folder)
            alive += found is None
            print("SURVIVES" if found is None else "dies    ", mutant.rule, "·", found or "", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} die")
    raise SystemExit(alive > 0)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Benchmark of lists and searches over a million stores, names, repositories and changes, and ten million files."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import psycopg
from bench.timing import Row
from tests.support.postgres import running_postgres

from protoslice.catalog.audit import AuditQuery, AuditTable
from protoslice.catalog.listing import SORTS, StoreQuery
from protoslice.catalog.spaces import Account
from protoslice.catalog.stores import StoreTable
from protoslice.database import Database, Transaction, upgrade
from protoslice.database.postgres import PostgresDatabase
from protoslice.database.sqlite import SqliteDatabase

SPACE: Final = "bench"
STORES: Final = 1_000_000
_BATCH: Final = 20_000
_FAMILIES: Final = (
    "resnet", "bert", "yolo", "whisper", "llama", "mistral", "clip", "vit", "gpt", "t5", "roberta", "deberta",
    "efficientnet", "mobilenet", "unet", "wav2vec", "swin", "dino", "sam", "phi", "gemma", "qwen", "falcon", "mamba",
    "convnext", "densenet", "inception", "squeezenet", "albert", "electra", "bloom", "opt",
)  # fmt: skip
_VARIANTS: Final = (
    "base", "large", "small", "tiny", "xl", "uncased", "int8", "fp16", "quantized", "distilled", "chat", "instruct",
    "vision", "multilingual", "v2", "v3",
)  # fmt: skip
_TYPES: Final = ("onnx.ModelProto", "tensorflow.SavedModel", "CoreML.Specification.Model", "caffe.NetParameter")


def _choice(words: tuple[str, ...], number: str) -> str:
    """Return an expression for the word that a number chooses."""
    cases = " ".join(f"WHEN {each} THEN '{word}'" for each, word in enumerate(words))
    return f"CASE ({number}) % {len(words)} {cases} END"


_NUMBERS: Final = (
    "WITH RECURSIVE n (i) AS (SELECT CAST(:first AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i < :last)"
)
_RANDOM: Final = "((i * 7919 + i / 13 * 104729) % 1000003)"
"""A number below a million and three which looks random."""
_MODEL: Final = f"{_choice(_FAMILIES, _RANDOM)} || '-' || {_choice(_VARIANTS, _RANDOM + ' / 32')} || '-' || i"
_HUB: Final = f"'org' || ({_RANDOM} % 5000) || '/' || {_MODEL}"
_SEEDS: Final = (
    f"""INSERT INTO stores (space, id, digest, type, size, held, created, weight, manifest, uploader) {{numbers}}
        SELECT '{SPACE}', i, {{digest}}, {_choice(_TYPES, _RANDOM + " / 7")}, {_RANDOM} * 4001, 0,
            1700000000000000 + i * 60000000, 900, {{manifest}}, 'user' || ({_RANDOM} % 300) FROM n""",
    f"""INSERT INTO repositories (space, id, protocol, name, created) {{numbers}}
        SELECT '{SPACE}', i + 1, 'hub', {_HUB}, 0 FROM n""",
    f"""INSERT INTO names (space, repository, kind, name, store, version, updated, label) {{numbers}}
        SELECT '{SPACE}', CASE WHEN i % 2 = 0 THEN 0 ELSE i + 1 END, CASE WHEN i % 2 = 0 THEN 'tag' ELSE 'heads' END,
            CASE WHEN i % 2 = 0 THEN {_MODEL} ELSE 'main' END, {{digest}}, {{version}}, i,
            '{SPACE}\n' || CASE WHEN i % 2 = 0 THEN {_MODEL} ELSE {_HUB} || '@main' END FROM n""",
    *(
        f"""INSERT INTO file_digests (space, sha256, store, n) {{numbers}}
            SELECT '{SPACE}', {{bytes}}, i, {number} FROM n""".replace("{key}", f"i * 10 + {number}")
        for number in range(10)
    ),
)
_AUDIT: Final = f"""
    INSERT INTO audit (at, change, n, space, who, what, subject, detail) {{numbers}}
    SELECT 1700000000000000 + i * 60000000, {{bytes}}, 0, '{SPACE}', 'user' || ({_RANDOM} % 300),
        CASE i % 4 WHEN 0 THEN 'store.created' WHEN 1 THEN 'tag.removed' ELSE 'tag.set' END,
        {_MODEL}, '{{{{}}}}' FROM n"""
_DIALECTS: Final = {
    "sqlite": {
        "digest": "printf('%08x', i * 2654435761 % 4294967296) || printf('%056x', i)",
        "manifest": "zeroblob(1200)",
        "version": "zeroblob(16)",
        "bytes": "CAST(printf('%032d', i) AS blob)",
    },
    "postgresql": {
        "digest": "lpad(to_hex(i * 2654435761 % 4294967296), 8, '0') || lpad(to_hex(i), 56, '0')",
        "manifest": "decode(repeat('00', 1200), 'hex')",
        "version": "decode(repeat('00', 16), 'hex')",
        "bytes": "convert_to(lpad(i::text, 32, '0'), 'UTF8')",
    },
}


TERMS: Final = (
    "resnet",
    "Whisper-Tiny-31",
    "main",
    "999",
    "zzzz",
    "org12/",
    "be",
    "-5",
    "ORG1",
    "e-1",
    "v2-99",
    "bert-base",
)
_FILTERS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"type": "onnx.ModelProto"}, {"uploader": "user7"}, {"min_size": 3_999_000_000}, {"max_size": 4_000_000},
    {"since": 1_759_940_000_000_000}, {"until": 1_700_030_000_000_000}, {"type": "none"},
    {"type": "onnx.ModelProto", "uploader": "user7", "min_size": 2_000_000_000},
)  # fmt: skip
_PAGES: Final = 3
_SQLITE_SECONDS: Final = 0.050
_POSTGRES_SECONDS: Final = 0.075


def lists(folder: Path, scale: float) -> Iterator[Row]:
    """Measure lists, searches and the audit on both engines."""
    count = max(1, int(STORES * scale))
    yield from asyncio.run(_measured("SQLite", SqliteDatabase(folder / "lists.sqlite"), count, _SQLITE_SECONDS))
    with running_postgres() as server:
        url = server.new_database()
        database = PostgresDatabase(url)
        asyncio.run(fill(database, count))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")  # as autovacuum does
        yield from asyncio.run(_measured("PostgreSQL", database, 0, _POSTGRES_SECONDS))


async def _measured(name: str, database: Database, count: int, bar: float) -> list[Row]:
    try:
        if count:
            await fill(database, count)
        chosen = random.Random(1)
        every = [
            StoreQuery(name=term, sort=sort, descending=descending, **given)
            for term, given, sort, descending in product((None, *TERMS), _FILTERS, SORTS, (False, True))
        ]
        chosen.shuffle(every)
        seconds = [(query, await _pages(database, query)) for query in every]
        plain = [each for query, pages in seconds for each in pages if query.name is None]
        named = [each for query, pages in seconds for each in pages if query.name is not None]
        changes = [
            AuditQuery(who=who, what=what, subject=subject)
            for who, what, subject in product((None, "user7", "none"), (None, "store.created"), (None, "none"))
        ]
        audit = [each for query in changes * 5 for each in await _audit_pages(database, query)]
        return [
            _row(f"{name}, lists by type, size, time and uploader, 5 sort keys", plain, bar),
            _row(f"{name}, searches for a part of a name with these", named, bar),
            _row(f"{name}, audit by who, what and subject", audit, bar),
        ]
    finally:
        await database.close()


async def _pages(database: Database, query: StoreQuery) -> list[float]:
    """Return the seconds of the first pages of 20 stores."""
    table, seconds, after = StoreTable(database, Account(SPACE)), list[float](), None
    for _ in range(_PAGES):
        begun = time.perf_counter()
        found, rest = await table.page(query, limit=21, after=after, room=1 << 20, tags=100)
        seconds.append(time.perf_counter() - begun)
        after = rest if rest is not None else found[-2].key if len(found) == 21 else None
        if after is None:
            break
    return seconds


async def _audit_pages(database: Database, query: AuditQuery) -> list[float]:
    table, seconds, after = AuditTable(database, SPACE), list[float](), None
    for _ in range(_PAGES):
        begun = time.perf_counter()
        _, after = await table.page(query, limit=100, after=after)
        seconds.append(time.perf_counter() - begun)
        if after is None:
            break
    return seconds


def _row(what: str, seconds: list[float], bar: float) -> Row:
    ordered = sorted(seconds)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    shown = f"p50 {p50 * 1e3:.1f} ms, longest {ordered[-1] * 1e3:.1f} ms, {len(ordered)} pages"
    return Row(f"{what}: p99", f"{p99 * 1e3:.1f} ms", shown, p99, bar, False)


async def fill(database: Database, stores: int = STORES) -> None:
    """Create the tables of a catalogue, and fill them."""
    await upgrade(database)
    await database.fill(partial(_run, f"INSERT INTO repositories VALUES ('{SPACE}', 0, 'stores', '', 0)", {}))
    for seed in (*_SEEDS, _AUDIT):
        statement = seed.format(numbers=_NUMBERS, **_DIALECTS[database.dialect])
        for first in range(1, stores + 1, _BATCH):
            values = {"first": first, "last": min(first + _BATCH - 1, stores)}
            await database.fill(partial(_run, statement, values))


def _run(sql: str, values: dict[str, int], tx: Transaction) -> None:
    tx.run(sql, **values)

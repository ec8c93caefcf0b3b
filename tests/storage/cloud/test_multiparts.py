"""Multipart uploads that dead writers left: ended once no part has come for long, and no others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from tests.support.s3 import RawBucket, emulator

from protoslice.storage import ObjectKey
from protoslice.storage.cloud.backend import CloudStorage
from protoslice.storage.cloud.multiparts import Multiparts
from protoslice.storage.cloud.signing import Keys

KEY = ObjectKey("objects/a b/file+1")


def collected(bucket: RawBucket, options: Mapping[str, str], *ages: float) -> list[int]:
    async def work() -> list[int]:
        async with CloudStorage.from_uri(bucket.uri, options) as storage:
            return [await storage.collect_garbage(age) for age in ages]

    return asyncio.run(work())


def test_uploads_of_dead_writers_end_after_the_grace_and_those_beside_the_folder_stay() -> None:
    with emulator() as options:
        bucket = RawBucket.make(options)
        beside = RawBucket(bucket._bucket, "some/folders", options)
        for place, key in ((bucket, KEY), (bucket, ObjectKey("b")), (beside, ObjectKey("c"))):
            asyncio.run(place.leave_upload(key))
        assert collected(bucket, options, 3600, -60, -60) == [0, 2, 0]
        assert asyncio.run(bucket.names()) == []
        assert asyncio.run(beside.names()) == ["upload of some/folders/c"]


def test_a_writer_at_work_is_spared() -> None:
    async def work() -> None:
        async with CloudStorage.from_uri(bucket.uri, options) as storage:
            storage.part_bytes = 5 << 20
            data = Random(0).randbytes(12 << 20)
            async with await storage.writer(KEY) as writer:
                await writer.write(data)
                assert await storage.collect_garbage(-60) == 0
                await writer.commit()
            assert await storage.get_range(KEY, 0, len(data)) == data
            assert not storage._uploading, "memory does not grow with what was written"

    with emulator() as options:
        bucket = RawBucket.make(options)
        asyncio.run(work())


def test_a_refusal_is_told_and_ends_no_collection(caplog: pytest.LogCaptureFixture) -> None:
    with emulator() as options:
        bucket = RawBucket.make(options)
        gone = RawBucket("no-such-bucket", "some/folder", options)
        with caplog.at_level(logging.WARNING):
            assert collected(gone, options, 0) == [0]
        assert "404 (NoSuchBucket)" in caplog.text
        assert "a-secret-of-nobody" not in caplog.text
        caplog.clear()
        assert collected(bucket, {**options, "endpoint": "http://127.0.0.1:9"}, 0) == [0]
        assert "did not respond" in caplog.text


def listed(name: str, rows: list[str], *following: str) -> bytes:
    truncated = f"<IsTruncated>{'true' if following else 'false'}</IsTruncated>"
    return f'<{name} xmlns="urn:s3">{"".join(following)}{"".join(rows)}{truncated}</{name}>'.encode()


def upload(key: str, begun: str) -> str:
    return f"<Upload><Key>{key}</Key><UploadId>{key}-1</UploadId><Initiated>{begun}</Initiated></Upload>"


def part(came: str) -> str:
    return f"<Part><PartNumber>1</PartNumber><LastModified>{came}</LastModified></Part>"


def test_every_page_is_read_and_an_upload_whose_last_part_is_young_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of `slow` came on two pages, the second of them just now; `odd` has no time."""
    old, young = "2026-01-01T00:00:00.000Z", "2026-03-01T00:00:00Z"
    second = {"key-marker": "f/slow", "upload-id-marker": "slow-1"}
    pages = {
        ("", None): listed(
            "L",
            [upload("f/slow", old), upload("f/new", young), upload("f/odd", "")],
            "<NextKeyMarker>f/slow</NextKeyMarker><NextUploadIdMarker>slow-1</NextUploadIdMarker>",
        ),
        ("", "f/slow"): listed("L", [upload("f/dead", old), upload("f/mine", old)]),
        ("f/slow", None): listed("P", [part(old)], "<NextPartNumberMarker>1</NextPartNumberMarker>"),
        ("f/slow", "1"): listed("P", [part(young)]),
        ("f/dead", None): listed("P", [part(old)]),
    }
    ended: list[tuple[str, str]] = []

    async def ask(_: object, __: object, method: str, key: str, query: dict[str, Any]) -> bytes:
        if method == "DELETE":
            ended.append((key, query["uploadId"]))
            return b""
        assert query.get("key-marker") is None or second.items() <= query.items()
        return pages[key, query.get("key-marker") or query.get("part-number-marker")]

    monkeypatch.setattr(Multiparts, "_ask", ask)
    multiparts = Multiparts("http://nobody/bucket", "f", Keys("", "", "", ""))
    before = datetime(2026, 2, 1, tzinfo=UTC)
    assert asyncio.run(multiparts.end(before=before, spared={"mine"})) == 1
    assert ended == [("f/dead", "f/dead-1")]

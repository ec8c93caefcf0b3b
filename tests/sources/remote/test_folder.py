"""Folders of objects: what paths cost, and which there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.counted import CountedBucket, counted_bucket

from protoslice.errors import LimitExceeded, NotFound
from protoslice.sources import remote as folders
from protoslice.sources.remote import open_folder


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        found.fill({"m/saved_model.pb": b"root", "m/variables/variables.index": b"index", "other": b"x"})
        yield found


def test_a_file_brings_those_beside_it(bucket: CountedBucket) -> None:
    files, named = open_folder(f"{bucket.uri}/m/saved_model.pb")
    assert named == "saved_model.pb"
    assert files["variables/variables.index"].read(0, 5) == b"index"
    assert "../other" not in files
    assert "nothing" not in files
    assert "nothing" not in files
    assert bucket.requests == [("stat", 0), ("stat", 0), ("get", 5), ("stat", 0)]
    files.close()
    assert bucket.closed == 1


@pytest.mark.parametrize(("end", "requests"), [("", ["stat", "list", "list"]), ("/", ["list"])])
def test_a_folder_is_listed_once(bucket: CountedBucket, end: str, requests: list[str]) -> None:
    files, named = open_folder(f"{bucket.uri}/m{end}")
    assert named is None
    assert list(files) == ["saved_model.pb", "variables/variables.index"]
    assert len(files) == 2
    assert files.size_of("saved_model.pb") == 4
    assert "nothing" not in files
    assert [name for name, _ in bucket.requests] == requests


def test_a_whole_bucket_is_a_folder(bucket: CountedBucket) -> None:
    files, _ = open_folder(bucket.uri)
    assert list(files) == ["m/saved_model.pb", "m/variables/variables.index", "other"]


def test_neither_file_nor_folder(bucket: CountedBucket) -> None:
    with pytest.raises(NotFound, match=f"No object {bucket.uri}/oth"):
        open_folder(f"{bucket.uri}/oth")
    assert bucket.closed == 1


def test_a_folder_of_too_many_is_refused_by_a_few_requests(
    bucket: CountedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 1500)
    bucket.fill({f"many/{number}": b"" for number in range(5000)})
    files, _ = open_folder(f"{bucket.uri}/many/")
    with pytest.raises(LimitExceeded, match="more than 1500 objects"):
        list(files)
    assert len(bucket.requests) == 2

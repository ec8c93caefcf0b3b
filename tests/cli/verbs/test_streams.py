"""Differences of streams by record, and by path in records: of files, and of stores by their service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.streams import FRAMED, example

from protoslice.comparing.parts import MOST_INSIDE

EXAMPLES = [example(n) for n in range(3000)]
Compare = Callable[..., list[dict[str, Any]]]


@pytest.fixture(params=["files", "stores"])
def compare(request: pytest.FixtureRequest, call: Any, tmp_path: Path) -> Compare:
    """The parts that differ between two streams, as `diff` tells them."""

    def told(before: list[bytes], after: list[bytes]) -> list[dict[str, Any]]:
        names = []
        for name, records in (("before", before), ("after", after)):
            (tmp_path / name).mkdir()
            file = tmp_path / name / "log.tfrecord"
            file.write_bytes(FRAMED["tfrecord"](records))
            names.append(str(file))
            if request.param == "stores":
                call("push", file, "--tag", f"{tmp_path.name}:{name}")
                names[-1] = f"@{tmp_path.name}:{name}"
        found: list[dict[str, Any]] = json.loads(call("diff", *names, "--json", code=8).stdout)["differences"]
        assert (found[0]["what"], found[0]["change"]) == ("file", "changed")
        return found[1:]

    return told


def facts(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["change"], each["path"]) for each in found]


def test_parts_of_a_record_are_told_by_path(compare: Compare) -> None:
    changed = [*EXAMPLES[:1700], example(5), *EXAMPLES[1701:]]
    found = facts(compare(EXAMPLES, changed))
    assert ("changed", 'records[1700].features.feature["label"].int64_list.value') in found
    assert {path.partition(".")[0] for _, path in found} == {"records[1700]"}


def test_records_that_were_put_in_are_told_and_none_behind_them(compare: Compare) -> None:
    found = compare(EXAMPLES, [*EXAMPLES[:2000], *EXAMPLES[5:15], *EXAMPLES[2000:]])
    assert facts(found) == [("added", "records[2000:2010]")]
    assert found[0]["detail"] == "10 records"


def test_a_record_that_was_taken_out_is_told(compare: Compare) -> None:
    assert facts(compare(EXAMPLES, EXAMPLES[1:])) == [("removed", "records[0]")]


def test_the_same_bytes_cut_otherwise_are_other_records(compare: Compare) -> None:
    found = facts(compare([b"ab", b"c", *EXAMPLES], [b"a", b"bc", *EXAMPLES]))
    assert {path.partition(".")[0] for _, path in found} == {"records[0]", "records[1]"}


def test_of_very_many_records_the_first_are_looked_into(compare: Compare) -> None:
    others = [example(n + 1) for n in range(3000)]
    found = compare(EXAMPLES, others)
    assert (found[-1]["path"], found[-1]["detail"]) == ("records[100:3000]", "at least one of these records differs")
    assert len({each["path"].partition(".")[0] for each in found[:-1]}) == MOST_INSIDE


def test_a_stream_that_is_too_large_is_told_as_a_file(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protoslice.comparing.parts.LARGEST_STREAM", 1000)
    for name, records in (("a", EXAMPLES), ("b", EXAMPLES[1:])):
        (tmp_path / name).write_bytes(FRAMED["tfrecord"](records))
    found = json.loads(call("diff", tmp_path / "a", tmp_path / "b", "--json", code=8).stdout)["differences"]
    assert [each["what"] for each in found] == ["file"]

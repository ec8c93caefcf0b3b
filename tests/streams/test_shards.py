"""Shards as one sequence: names, what is missing, and records numbered through."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.streams import FRAMED, example

import protoslice
from protoslice import _core
from protoslice.errors import InvalidInput, LimitExceeded, NotFound
from protoslice.sources.files import BytesSource
from protoslice.streams.records import JoinedRecords, Shard
from protoslice.streams.shards import name_of, shards_among

EXAMPLES = [example(n) for n in range(100)]
CUTS = [0, 7, 7, 40, 41, 100]
"""Ends of shards; the second one is empty."""


def sharded(folder: Path, framing: str = "tfrecord", cuts: list[int] = CUTS, name: str = "train") -> Path:
    folder.mkdir(exist_ok=True)
    for number, (start, stop) in enumerate(pairwise(cuts)):
        shard = folder / f"{name}-{number:05}-of-{len(cuts) - 1:05}.rec"
        shard.write_bytes(FRAMED[framing](EXAMPLES[start:stop]))
    return folder


@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("name", ["", "/", "/train@5.rec", "/train@*.rec", "/train-*", "/*.rec"])
def test_shards_are_one_sequence(framing: str, name: str, tmp_path: Path) -> None:
    with protoslice.records(f"{sharded(tmp_path / 'all', framing)}{name}", framing=framing) as records:
        assert (len(records), records.type, records.fault) == (100, "tensorflow.Example", None)
        assert list(records) == records.all() == EXAMPLES
        assert records[[99, 0, 7, 40, 40, -1]] == [EXAMPLES[n] for n in (99, 0, 7, 40, 40, 99)]
        assert bytes(records.rope()) == FRAMED[framing](EXAMPLES)
        assert bytes(records[30:60].rope("u64be")) == FRAMED["u64be"](EXAMPLES[30:60])
        assert bytes(records.record(41)) == EXAMPLES[41]
        with pytest.raises(IndexError, match="there are 100"):
            records[100]


def test_shards_that_have_to_be_decoded(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "gz")
    for path in folder.iterdir():
        path.write_bytes(gzip.compress(path.read_bytes()))
    with protoslice.records(folder) as records:
        assert (records.framing, list(records)) == ("tfrecord_gzip", EXAMPLES)
        assert bytes(records[5:50].rope("tfrecord")) == FRAMED["tfrecord"](EXAMPLES[5:50])


def joined(cuts: list[int], **bounds: int) -> tuple[protoslice.Records, JoinedRecords]:
    shards = []
    for start, stop in pairwise(cuts):
        source = BytesSource(FRAMED["u32le"](EXAMPLES[start:stop]))
        shards.append(Shard(f"{start}", _core.Records(_core.index_records(_core.Sources([source]), "u32le")), source))
    return protoslice.Records(shards, "tensorflow.Example"), JoinedRecords(shards, **bounds)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(cuts=st.lists(st.integers(0, 100), max_size=6), data=st.data())
def test_any_cut_is_the_same_sequence(cuts: list[int], data: st.DataObject) -> None:
    records, core = joined([0, *sorted(cuts), 100])
    some = data.draw(st.lists(st.integers(-100, 99), max_size=9))
    assert records[some] == [EXAMPLES[n] for n in some]
    part = data.draw(st.slices(100))
    assert list(records[part]) == EXAMPLES[part]
    assert bytes(records[part].rope("delimited")) == FRAMED["delimited"](EXAMPLES[part])
    start = data.draw(st.integers(0, 99))
    assert start < core.batch_end(start, 300) <= 100


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "all")
    (folder / "train-00003-of-00005.rec").unlink()
    for name in ("", "/train@5.rec", "/train-*"):
        with pytest.raises(NotFound, match=r"train@5.rec is missing 1 of its shards: train-00003-of-00005.rec$"):
            protoslice.records(f"{folder}{name}")
    with pytest.raises(NotFound, match="No file matches test-"):
        protoslice.records(folder / "test-*")


def test_a_folder_of_several_sets_names_them(tmp_path: Path) -> None:
    folder = sharded(sharded(tmp_path / "all"), name="test")
    with pytest.raises(InvalidInput, match=r"several sets of shards: choose one of test@5.rec, train@5.rec"):
        protoslice.records(folder)
    assert len(protoslice.records(folder / "test@*.rec")) == 100
    with pytest.raises(InvalidInput, match="no shards"):
        protoslice.records(tmp_path)


def test_shards_have_a_name_in_common() -> None:
    assert name_of([f"x/train-{n:05}-of-00002.tfrecord" for n in range(2)]) == "x/train@2.tfrecord"
    assert name_of(["x/day1", "x/day2"], "x/day*") == "x/day*"
    assert name_of(["a-00000-of-00001", "day2"], "*") == "*"


def test_numbers_that_lie_take_no_time() -> None:
    with pytest.raises(NotFound, match="is missing 999999999999999998 of its shards: a-00000-of-999999999999999999, "):
        shards_among(["a-00007-of-999999999999999999"])
    with pytest.raises(InvalidInput, match="number is too high, 8"):
        shards_among([f"a-{n:05}-of-00002" for n in (0, 8)])
    with pytest.raises(LimitExceeded, match="5000 shards"):
        shards_among([f"a-{n:05}-of-05000" for n in range(5000)])


def test_a_shard_that_is_cut_is_named_and_ends_alone(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "all")
    cut = folder / "train-00002-of-00005.rec"
    cut.write_bytes(cut.read_bytes()[:-1])
    with protoslice.records(folder) as records:
        assert list(records) == EXAMPLES[:39] + EXAMPLES[40:]
        assert "train-00002-of-00005.rec: " in str(records.fault)


def test_an_answer_over_shards_is_bounded() -> None:
    _, core = joined(list(range(0, 101, 10)), pieces=30, held=1 << 20)
    with pytest.raises(LimitExceeded, match="fewer at a time"):
        core.rope([(0, 100)], "u64be")
    with pytest.raises(LimitExceeded, match="between shards more than 8 times"):
        core.views([(0, 100)], "delimited", None, None, "1")
    _, core = joined([0, 50, 100], held=100)
    with pytest.raises(LimitExceeded, match="fewer at a time"):
        core.rope([(0, 100)], "u64be")

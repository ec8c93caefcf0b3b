"""ArrayRecord files that `array_record` wrote: records as its reader gives them, by few reads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.streams.test_records import Counting
from tests.support.golden import GOLDEN
from tests.support.streams import FRAMED

import protoslice
from protoslice.errors import CorruptModel, Unsupported
from protoslice.riegeli import RecordReader

FOLDER: Final = GOLDEN / "array_record"
EXPECTED: Final[dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())


def stored(name: str) -> Path:
    return FOLDER / f"{name}.array_record"


@pytest.mark.parametrize("name", EXPECTED)
def test_the_records_are_those_of_its_own_reader(name: str) -> None:
    expected = EXPECTED[name]["records"]
    with protoslice.records(stored(name)) as records:
        assert (records.framing, len(records), records.fault) == ("array_record", len(expected), None)
        assert records.type == ("tensorflow.Example" if expected else None)
        assert [hashlib.sha256(record).hexdigest()[:16] for record in records] == expected
        assert list(records[::-7]) == list(records)[::-7]
        assert bytes(records.rope("u32le")) == FRAMED["u32le"](list(records))


def test_the_index_takes_a_few_reads_whatever_the_count() -> None:
    source = Counting(stored("default").read_bytes())
    index = protoslice.records(source, "tensorflow.Example").index_bytes
    assert len(source.reads) <= 10 < len(EXPECTED["default"]["records"])
    source.reads.clear()
    assert len(protoslice.records(source, "tensorflow.Example", index=index)[17]) == 0
    assert len(source.reads) <= 3


def test_without_a_footer_it_is_a_riegeli_file() -> None:
    whole = stored("uncompressed").read_bytes()
    assert protoslice.records(whole[:65536]).framing == "riegeli"
    named = protoslice.records(whole, framing="riegeli")
    assert list(named) == list(RecordReader(str(stored("uncompressed"))).read_records())
    assert len(named) > len(EXPECTED["uncompressed"]["records"])


def test_a_footer_that_is_damaged_names_the_framing_that_reads_without_it() -> None:
    whole = bytearray(stored("uncompressed").read_bytes())
    whole[65536 + 80] ^= 1  # of the message that says where the footer is
    with pytest.raises(CorruptModel):
        protoslice.records(bytes(whole), framing="array_record")
    with pytest.raises(CorruptModel, match="framing riegeli"):
        protoslice.records(bytes(whole[:60_000]), framing="array_record")


def test_records_are_not_given_out_compressed() -> None:
    with pytest.raises(Unsupported, match="cannot be written as tfrecord_gzip"):
        protoslice.records(stored("default")).rope("tfrecord_gzip")

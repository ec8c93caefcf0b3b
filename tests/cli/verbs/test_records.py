"""The command `records`, on many records and on requests that another program wrote.

`diff` shows differences of streams by record and by path, for files, and for stores by their service. Records may have
user-defined types, without a compiler and with extensions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from tests.cli import makers
from tests.engine.test_places import SET
from tests.support.canonical import delimited
from tests.support.golden import folder
from tests.support.streams import FRAMED, example

from protoslice import schema
from protoslice.cli.commands import records as command
from protoslice.client import Client
from protoslice.comparing.parts import MOST_INSIDE


@pytest.mark.parametrize("place", ["file", "store"])
def test_all_records_are_rendered_in_runs(
    call: Any, service: str, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_AT_ONCE", 1000)
    stream = tmp_path / "train.tfrecord"
    stream.write_bytes(FRAMED["tfrecord"]([example(number) for number in range(300)]))
    name = str(stream)
    if place == "store":
        with Client(service) as client:
            name = f"{service}/v1/stores/{client.push(stream).store.id}"
    lines = [json.loads(line) for line in call("records", name, "--range", ":", "--json").stdout.splitlines()]
    labels = [int(line["features"]["feature"]["label"]["int64_list"]["value"][0]) for line in lines]
    assert labels == list(range(300))
    assert call("records", name, "--text", "--range", ":").stdout.count("\n\n") == 299


def test_warm_up_requests_by_number(call: Any) -> None:
    path = folder("tf_sm_functions") / "assets.extra" / "tf_serving_warmup_requests"
    log: Any = schema.bundled().message_class("tensorflow.serving.PredictionLog")
    assert json.loads(call("records", path, "--json").stdout)["type"] == "tensorflow.serving.PredictionLog"
    for number in range(3):
        message = log.FromString(call("records", path, number, "-o", "-").stdout_bytes)
        assert message.WhichOneof("log_type") is not None
        assert json.loads(call("records", path, number, "--json").stdout) == json.loads(
            json_format.MessageToJson(message, preserving_proto_field_name=True)
        )


EXAMPLES = [example(n) for n in range(3000)]
Compare = Callable[..., list[dict[str, Any]]]


@pytest.fixture(params=["files", "stores"])
def compare(request: pytest.FixtureRequest, call: Any, tmp_path: Path) -> Compare:
    """Return the parts that `diff` reports as different between two streams."""

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


def test_without_a_compiler_a_proto_file_is_told_how_to_be_compiled(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers.thing(tmp_path)
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    told = call(
        "tree", tmp_path / "thing.pb", "--schema", tmp_path / "thing.proto", "--type", "me.Thing", code=3
    ).stderr
    assert "pip install grpcio-tools" in told
    assert "--descriptor_set_out" in told


def test_extensions_are_printed_by_paths_that_are_accepted(call: Any, tmp_path: Path) -> None:
    (tmp_path / "x.binpb").write_bytes(SET.SerializeToString())
    leaf = delimited(1, b"y" * 20)
    (tmp_path / "m.pb").write_bytes(delimited(101, delimited(101, leaf)) + delimited(102, leaf))
    schema = [tmp_path / "m.pb", "--schema", tmp_path / "x.binpb", "--type", "x.M"]

    def paths(listed: Any) -> list[str]:
        return [
            path for node in listed["items"] for path in (node["path"], *paths(node.get("children", {"items": []})))
        ]

    printed = paths(json.loads(call("tree", *schema, "--depth", "4", "--json").stdout))
    assert "[x.ext].[x.ext].bytes" in printed
    assert "[x.exts][0].bytes" in printed
    for path in printed:
        call("tree", schema[0], path, *schema[1:])
        call("merge", schema[0], "-", "--fields", path, *schema[1:])
    assert call("cat", schema[0], "[x.exts][0].bytes", "-o", "-", *schema[1:]).stdout_bytes == b"y" * 20

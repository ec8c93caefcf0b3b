"""The verb `records` chooses records and parts of them alike in a file and in a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.streams import FRAMED, example
from typer.testing import Result

from protoslice import schema
from protoslice.cli.commands import records as verb
from protoslice.client import Client
from protoslice.streams import open_records

COUNT = 300
EXAMPLES = [example(n) for n in range(COUNT)]
LABEL = 'features.feature["label"]'
VALUE = f"{LABEL}.int64_list.value[0]"

Call = Callable[..., Result]


@pytest.fixture(params=["file", "store"])
def ask(request: pytest.FixtureRequest, call: Any, service: str, tmp_path: Path) -> Call:
    """Calls the verb with a stream in a file, or in a store."""
    stream = tmp_path / "train.tfrecord"
    stream.write_bytes(FRAMED["tfrecord"](EXAMPLES))
    name = str(stream)
    if request.param == "store":
        with Client(service) as client:
            name = f"{service}/v1/stores/{client.push(stream).store.id}"
    return lambda *args, code=0: call("records", name, *args, code=code)


def labels(done: Result) -> list[int]:
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [int(line["features"]["feature"]["label"]["int64_list"]["value"][0]) for line in lines]


def framed(done: Result, framing: str = "tfrecord") -> list[bytes]:
    return open_records(done.stdout_bytes, "unknown", framing=framing).all()


def test_summaries_ranges_and_single_records(ask: Call) -> None:
    assert json.loads(ask("--json").stdout)["count"] == COUNT
    assert ask("--count").stdout == f"{COUNT}\n"
    assert ask("7", "-o", "-").stdout_bytes == EXAMPLES[7]
    assert json.loads(ask("7", "--json").stdout)["features"]["feature"]["label"]["int64_list"]["value"] == ["7"]
    assert framed(ask("--range", "5:9", "-o", "-")) == EXAMPLES[5:9]
    assert labels(ask("--range", "-2:", "--json")) == [COUNT - 2, COUNT - 1]
    assert f"o record {COUNT}" in ask(str(COUNT), "--json", code=4).stderr


def test_records_by_key(ask: Call) -> None:
    assert framed(ask("--key", VALUE, "--value", "31", "--value", "4", "-o", "-")) == [EXAMPLES[31], EXAMPLES[4]]
    assert labels(ask("--key", VALUE, "--value", "299", "--json")) == [299]
    assert "No record has the value 'x'" in ask("--key", VALUE, "--value", "x", "--json", code=4).stderr
    assert "value=" in ask("--key", VALUE, "--json", code=2).stderr


def test_samples_are_the_same_everywhere(ask: Call) -> None:
    found = labels(ask("--sample", "10", "--seed", "3", "--json"))
    assert found == sorted(Random(3).sample(range(COUNT), 10))
    assert labels(ask("--sample", "10", "--seed", "4", "--json")) != found


def test_parts_of_records(ask: Call) -> None:
    feature: Any = schema.bundled().message_class("tensorflow.Feature")
    parts = framed(ask("--range", "10:12", "--path", LABEL, "-o", "-"))
    assert [feature.FromString(part).int64_list.value[0] for part in parts] == [10, 11]
    line, _ = ask("--range", "10:12", "--path", LABEL, "--json").stdout.splitlines()
    assert json.loads(line) == {"int64_list": {"value": ["10"]}}
    assert json.loads(ask("10", "--path", LABEL, "--json").stdout) == {"int64_list": {"value": ["10"]}}
    assert feature.FromString(ask("10", "--path", LABEL, "-o", "-").stdout_bytes).int64_list.value[0] == 10
    (masked,) = ask("--range", "3:4", "--fields", LABEL, "--json").stdout.splitlines()
    assert json.loads(masked)["features"]["feature"].keys() == {"label"}


def test_all_records_are_rendered_in_runs(ask: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "_AT_ONCE", 1000)
    assert labels(ask("--range", ":", "--json")) == list(range(COUNT))
    assert ask("--text", "--range", ":").stdout.count("\n\n") == COUNT - 1


def test_one_record_or_several(ask: Call) -> None:
    for more in (["--range", "1:2"], ["--sample", "2"], ["--key", VALUE, "--value", "3"]):
        assert "Pass either N" in ask("1", *more, code=2).stderr

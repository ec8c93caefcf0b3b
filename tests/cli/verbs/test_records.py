"""The command `records`: runs of many records, and requests that another program wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from tests.support.golden import folder
from tests.support.streams import FRAMED, example

from protoslice import schema
from protoslice.cli.commands import records as command
from protoslice.client import Client


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

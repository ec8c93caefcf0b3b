"""The verb `records`: what a stream is, one record, ranges, and streams that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from tests.support.golden import folder
from tests.support.streams import FRAMED, example
from typer.testing import CliRunner, Result

from protoslice import schema
from protoslice.cli import app as program
from protoslice.schema.rendering import render

EXAMPLES = [example(n) for n in range(30)]
TYPE = "tensorflow.Example"


@pytest.fixture
def stream(tmp_path: Path) -> str:
    """A TFRecord file."""
    path = tmp_path / "train.tfrecord"
    path.write_bytes(FRAMED["tfrecord"](EXAMPLES))
    return str(path)


def call(*args: str, code: int = 0) -> Result:
    done = CliRunner().invoke(program.app, ["records", *args])
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done


def test_a_stream_is_summed_up(stream: str) -> None:
    facts = json.loads(call(stream, "--json").stdout)
    size = len(FRAMED["tfrecord"](EXAMPLES))
    assert facts == {"framing": "tfrecord", "type": TYPE, "count": 30, "size": size}
    assert call(stream, "--count").stdout == "30\n"
    assert TYPE in call(stream).stdout


def test_shards_are_one_stream(tmp_path: Path) -> None:
    for shard in range(3):
        (tmp_path / f"train-{shard:05}-of-00003").write_bytes(
            FRAMED["tfrecord"](EXAMPLES[shard * 10 : shard * 10 + 10])
        )
    for name in ("", "/train@3", "/train-*"):
        assert call(f"{tmp_path}{name}", "--count").stdout == "30\n"
        assert call(f"{tmp_path}{name}", "--range", "5:25", "-o", "-").stdout_bytes == FRAMED["tfrecord"](
            EXAMPLES[5:25]
        )
        assert call(f"{tmp_path}{name}", "29", "-o", "-").stdout_bytes == EXAMPLES[29]
    (tmp_path / "train-00001-of-00003").unlink()
    assert "train@3 is missing 1 of its shards: train-00001-of-00003" in call(str(tmp_path), code=4).stderr


def test_one_record_comes_as_it_is_or_rendered(stream: str) -> None:
    assert call(stream, "7", "-o", "-").stdout_bytes == EXAMPLES[7]
    shown = json.loads(call(stream, "7", "--json").stdout)
    assert shown["features"]["feature"]["label"]["int64_list"]["value"] == ["7"]
    assert call(stream, "7", "--text").stdout_bytes == render(TYPE, "text", b"", EXAMPLES[7])


def test_binary_records_are_only_written_when_asked_for(stream: str) -> None:
    for args in (["7"], ["--range", "5:9"]):
        refused = call(stream, *args, code=3)
        assert (refused.stdout, "use --json or --text, or -o FILE" in refused.stderr) == ("", True)


def test_a_range_comes_framed_or_as_a_line_for_each(stream: str) -> None:
    assert call(stream, "--range", "5:9", "-o", "-").stdout_bytes == FRAMED["tfrecord"](EXAMPLES[5:9])
    lines = call(stream, "--range", "-2:", "--json").stdout.splitlines()
    labels = [json.loads(line)["features"]["feature"]["label"]["int64_list"]["value"] for line in lines]
    assert labels == [["28"], ["29"]]
    texts = call(stream, "--range", ":2", "--text").stdout_bytes
    assert texts == b"\n".join(render(TYPE, "text", b"", record) for record in EXAMPLES[:2])


def test_a_stream_that_is_cut_is_shown_and_then_told(tmp_path: Path) -> None:
    path = tmp_path / "cut.delimited"
    path.write_bytes(FRAMED["delimited"](EXAMPLES)[:-1])
    done = call(str(path), "--count", code=3)
    assert done.stdout == "29\n"
    assert "ends inside a record" in done.stderr
    assert call(str(path), "3", "-o", "-").stdout_bytes == EXAMPLES[3]


def test_a_framing_and_a_type_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(FRAMED["u32le"]([b"\x08\x07"]))
    args = (str(path), "0", "--framing", "u32le", "--type", "onnx.ModelProto", "--json")
    assert json.loads(call(*args).stdout) == {"ir_version": "7"}


def test_a_record_that_is_no_such_message_is_told(tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(FRAMED["delimited"]([b"\x08\x07", b"\xff\xff"]))
    args = (str(path), "--framing", "delimited", "--type", "onnx.ModelProto", "--json", "--range", ":")
    assert "These bytes are not a onnx.ModelProto" in call(*args, code=3).stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("30", "--json"), "No record 30"),
        (("1", "--range", "1:2"), "Pass either N"),
        (("--range", "7"), "Invalid range"),
        (("--framing", "csv"), "Unknown framing"),
        (("1", "--json", "--type", "my.Own"), "my.Own"),
    ],
)
def test_what_cannot_be_is_said(stream: str, args: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(program.app, ["records", stream, *args])
    assert done.exit_code not in {0, 1}
    assert words in done.stderr
    assert done.stderr.count("\n") <= 2


def test_warm_up_requests_by_number() -> None:
    path = folder("tf_sm_functions") / "assets.extra" / "tf_serving_warmup_requests"
    log: Any = schema.bundled().message_class("tensorflow.serving.PredictionLog")
    assert json.loads(call(str(path), "--json").stdout)["type"] == "tensorflow.serving.PredictionLog"
    for number in range(3):
        message = log.FromString(call(str(path), str(number), "-o", "-").stdout_bytes)
        assert message.WhichOneof("log_type") is not None
        assert json.loads(call(str(path), str(number), "--json").stdout) == json.loads(
            json_format.MessageToJson(message, preserving_proto_field_name=True)
        )

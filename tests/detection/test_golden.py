"""The golden models: our types know every field of them, and detection knows every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from tests.support.golden import MANIFEST, stored

from protoslice.detection import detect, detect_message
from protoslice.schema import bundled

CASES = [{"file": name, **facts} for name, facts in MANIFEST.items() if "kind" in facts]
PROTOS = [case for case in CASES if case["kind"] == "proto"]


def _name(case: dict[str, Any]) -> str:
    return str(case["file"])


def test_the_corpus_is_here() -> None:
    assert len(PROTOS) > 35
    assert len(CASES) > 45


@pytest.mark.parametrize("case", [case for case in PROTOS if "odd" not in case], ids=_name)
def test_every_field_is_known(case: dict[str, Any]) -> None:
    message = bundled().message_class(case["type"]).FromString(stored(case["file"]).read_bytes())
    assert list(_unknown(message)) == []
    assert message.ListFields()


def test_the_odd_ones_are_odd() -> None:
    """The files left out above have unknown fields or do not parse, so the test above can fail."""
    odd = [case for case in PROTOS if "odd" in case]
    for case in odd:
        data = stored(case["file"]).read_bytes()
        if case["odd"] == "unknown fields":
            assert list(_unknown(bundled().message_class(case["type"]).FromString(data)))
        else:
            with pytest.raises(DecodeError):
                bundled().message_class(case["type"]).FromString(data)
    assert len(odd) >= 6


def _unknown(message: Message, path: str = "") -> Iterator[str]:
    unknown: Any = UnknownFieldSet(message)
    for each in unknown:
        yield f"{path}{each.field_number}"
    for name, child in _children(message):
        yield from _unknown(child, f"{path}{name}.")


def _children(message: Any) -> Iterator[tuple[str, Message]]:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        entry = field.message_type.GetOptions().map_entry
        if entry and field.message_type.fields_by_name["value"].message_type is None:
            continue
        children = value.values() if entry else value if field.is_repeated else [value]
        yield from ((field.name, child) for child in children)


@pytest.mark.parametrize("case", CASES, ids=_name)
@pytest.mark.parametrize("length", [64 * 1024, 4096, 1024])
def test_each_is_detected_by_its_name_and_content(case: dict[str, Any], length: int) -> None:
    file = stored(case["file"])
    found = detect(file.read_bytes()[:length], case["file"], file.stat().st_size)
    assert (found.kind, found.type_name) == (case["kind"], case["type"]), found


@pytest.mark.parametrize("case", CASES, ids=_name)
@pytest.mark.parametrize("name", ["x.bin", None])
def test_each_is_detected_without_its_name(case: dict[str, Any], name: str | None) -> None:
    file = stored(case["file"])
    found = detect(file.read_bytes(), name, file.stat().st_size)
    # A TFRecord file does not say what its records are, and `checkpoint` looks like nothing without its name.
    nameless = {"tensorflow.serving.PredictionLog", "tensorflow.CheckpointState"}
    assert (found.kind, found.type_name) == (case["kind"], None if case["type"] in nameless else case["type"]), found


@pytest.mark.parametrize("case", [case for case in PROTOS if "odd" not in case], ids=_name)
@pytest.mark.parametrize("length", [600, 300])
def test_a_few_hundred_bytes_will_often_do(case: dict[str, Any], length: int) -> None:
    head = stored(case["file"]).read_bytes()[:length]
    assert detect_message(head, "x.bin").type_name == case["type"]


@pytest.mark.parametrize("case", [case for case in PROTOS if "odd" not in case], ids=_name)
def test_another_types_name_does_not_mislead(case: dict[str, Any]) -> None:
    name = "graph.pdmodel" if case["type"] != "paddle.framework.proto.ProgramDesc" else "model.onnx"
    assert detect(stored(case["file"]).read_bytes(), name).type_name == case["type"]

"""Texts parsed by another process: its errors are those of this one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from protoslice import schema
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded
from protoslice.schema.parsing import MAX_TEXT
from protoslice.schema.text_worker import serialized_apart

READ_BY = schema.bundled().kept("onnx.ModelProto")


def test_the_message_comes_back() -> None:
    assert serialized_apart(b"ir_version: 8", READ_BY) == b"\x08\x08"


def test_a_text_that_does_not_parse_is_corrupt() -> None:
    with pytest.raises(CorruptModel, match="line 2") as caught:
        serialized_apart(b"ir_version: 8\nnothing: 1", READ_BY)
    assert caught.value.offset == 14


def test_a_type_that_the_runtime_refuses_is_invalid() -> None:
    file = FileDescriptorProto(name="a.proto", package="onnx")
    for _ in range(2):
        file.message_type.add(name="ModelProto")
    twice = replace(READ_BY, canonical=FileDescriptorSet(file=[file]).SerializeToString())
    with pytest.raises(InvalidInput, match="does not accept this type"):
        serialized_apart(b"ir_version: 8", twice)


def test_a_text_beyond_the_limit_is_not_parsed() -> None:
    with pytest.raises(LimitExceeded):
        serialized_apart(b" " * (MAX_TEXT + 1), READ_BY)

"""Values that a closed enum does not declare are shown as numbers, in the order of paths."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.json_format import Parse as FromJson
from google.protobuf.json_format import ParseError as JsonError
from google.protobuf.text_format import Parse, ParseError

from protoslice.schema import from_descriptor_set
from protoslice.schema.rendering import MAX_UNDECLARED, render

_ENUM: Final = 'field {{ name: "{}" number: {} type: TYPE_ENUM label: LABEL_{} type_name: ".p.E" }} '
_MESSAGE: Final = 'field {{ name: "{}" number: {} type: TYPE_MESSAGE label: LABEL_{} type_name: "{}" }} '
_FILE: Final = f"""
name: "p.proto" package: "p" syntax: "proto2" dependency: "google/protobuf/any.proto"
enum_type {{ name: "E" value {{ name: "NONE" number: 0 }} value {{ name: "ONE" number: 1 }} }}
message_type {{
  name: "M"
  {_ENUM.format("c", 1, "OPTIONAL")} {_ENUM.format("rc", 2, "REPEATED")}
  {_MESSAGE.format("codes", 3, "REPEATED", ".p.M.CodesEntry")} {_MESSAGE.format("m", 4, "OPTIONAL", ".p.M")}
  {_MESSAGE.format("any", 5, "OPTIONAL", ".google.protobuf.Any")}
  field {{ name: "s" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL }}
  field {{ name: "other" number: 7 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".p.M.E" }}
  extension_range {{ start: 100 end: 200 }}
  enum_type {{ name: "E" value {{ name: "FIRST" number: 3 }} }}
  nested_type {{
    name: "CodesEntry" options {{ map_entry: true }}
    field {{ name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }} {_ENUM.format("value", 2, "OPTIONAL")}
  }}
}}
extension {{ name: "x" extendee: ".p.M" number: 100 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".p.E" }}
"""
_SET: Final = FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())]).SerializeToString()
_TYPES: Final = from_descriptor_set(_SET)
_MAP: Final = b"\x1a\x05\x0a\x01a\x10\x09"
_MINUS: Final = b"\xf9" + b"\xff" * 8 + b"\x01"
_ANY: Final = b"\x2a\x0a\x0a\x04/p.M\x12\x02\x08\x07"


def _rendered(form: str, data: bytes) -> str:
    return render("p.M", form, _TYPES.schema("p.M").canonical, data).decode()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\x08\x01", {"c": "ONE"}),
        (b"\x08\x07", {"c": 7}),
        (b"\x08" + _MINUS, {"c": -7}),
        (b"\x10\x07\x10\x01\x10\x09", {"rc": [7, "ONE", 9]}),
        (b"\x12\x03\x07\x01\x09", {"rc": [7, "ONE", 9]}),
        (_MAP, {"codes": {"a": 9}}),
        (b"\x22\x04\x22\x02\x08\x07", {"m": {"m": {"c": 7}}}),
        (_ANY, {"any": {"@type": "/p.M", "c": 7}}),
        (b"\xa0\x06\x07", {"[p.x]": 7}),
        (b"\x08\x07\x38\x07", {"c": 7, "other": 7}),
        (b"\x38\x03\x08\x03", {"c": 3, "other": "FIRST"}),
        (b"\x08\x07\x32\x01\xff", {"c": 7, "s": "\\xff"}),
        (b"\x08\x07\x90\x03\x05", {"c": 7}),
    ],
)
def test_undeclared_values_are_numbers(data: bytes, shown: Any) -> None:
    assert json.loads(_rendered("json", data)) == shown


def test_a_message_that_lacks_required_fields_is_shown() -> None:
    lacking = b"\x0a\x00"  # a block of a program without its required numbers
    assert render("paddle.framework.proto.ProgramDesc", "text", b"", lacking) == b"blocks {\n}\n"


def test_texts_and_streams_show_numbers() -> None:
    assert _rendered("text", b"\x10\x07\x10\x01") == "rc: 7\nrc: ONE\n"
    stream = b"\x02\x08\x07\x02\x08\x01\x02\x08\x09"
    assert _rendered("jsonl", stream) == '{"c": 7}\n{"c": "ONE"}\n{"c": 9}\n'
    assert _rendered("texts", stream) == "c: 7\n\nc: ONE\n\nc: 9\n"


def test_the_runtime_reads_undeclared_values_in_binary_form_only() -> None:
    kind, data = _TYPES.message_class("p.M"), b"\x08\x07"
    assert kind.FromString(data).SerializeToString() == data
    for text in (_rendered("text", data), "1: 7"):
        with pytest.raises(ParseError):
            Parse(text, kind(), allow_field_number=True)
    with pytest.raises(JsonError):
        FromJson(_rendered("json", data), kind())


def test_a_text_like_a_placeholder_stays() -> None:
    text = b"UNDECLARED_000000000000000000000000_0_7"
    shown = json.loads(_rendered("json", b"\x08\x07\x32" + bytes([len(text)]) + text))
    assert shown == {"c": 7, "s": text.decode()}


def test_many_undeclared_values_are_refused() -> None:
    packed = b"".join(bytes([each & 0x7F | 0x80, each >> 7]) for each in range(2, MAX_UNDECLARED + 3))
    head = b"\x12" + bytes([len(packed) & 0x7F | 0x80, len(packed) >> 7])
    with pytest.raises(ValueError, match=re.escape(f"more than {MAX_UNDECLARED} enum values")):
        _rendered("json", head + packed)

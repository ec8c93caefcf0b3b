"""Every data type with every field of values: the elements are those that TensorFlow itself reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.protos.writer import varint

from protoslice import schema
from protoslice.formats.tensorflow import TYPES
from protoslice.library.models import model_over
from protoslice.sources.files import BytesSource
from protoslice.tensors.reading import read

KEPT: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("typed_fields.json").read_text())
"""Elements that TensorFlow reads, by data type and field; the file says how it was made."""
CASES: Final = [(name, each) for name, row in KEPT["dtypes"].items() for each in row if each != "number"]


def _raw(message: bytes) -> bytes:
    model = model_over({"t.pb": BytesSource(message)}, "t.pb", "tensorflow.TensorProto")
    data = read(model.tensors[0], compare=False).bytes
    return data.read()


def _proto(number: int, name: str) -> Any:
    proto: Any = schema.bundled().message_class("tensorflow.TensorProto")()
    proto.dtype = number
    proto.tensor_shape.dim.add(size=3)
    values = KEPT["values"][name]
    if isinstance(values, str):
        setattr(proto, name, bytes.fromhex(values))
    else:
        getattr(proto, name).extend(values)
    return proto


def _one_by_one(proto: Any, name: str) -> bytes:
    """The message with its values in fields of their own, as writers of proto2 do."""
    packed = getattr(proto, name)
    if isinstance(packed, bytes):
        return bytes(proto.SerializeToString())
    number = proto.DESCRIPTOR.fields_by_name[name].number
    width = {"float_val": 4, "scomplex_val": 4, "double_val": 8, "dcomplex_val": 8}.get(name)
    del packed[1:]
    content = b""
    for value in KEPT["values"][name]:
        packed[0] = value
        alone = type(proto)()
        getattr(alone, name).append(value)
        values = alone.SerializeToString()[len(varint(number << 3 | 2)) + 1 :]
        content += varint(number << 3 | {None: 0, 4: 5, 8: 1}[width]) + values
    proto.ClearField(name)
    return bytes(proto.SerializeToString()) + content


def _narrow(name: str, elements: bytes) -> bytes:
    """`elements` as TensorFlow holds them, with the signs of integers narrower than a byte extended."""
    bits = {"int4": 4, "int2": 2}.get(name)
    if bits is None:
        return elements
    return bytes((each ^ 1 << bits - 1) - (1 << bits - 1) & 0xFF for each in elements)


@pytest.mark.parametrize(("name", "of"), CASES)
def test_elements_are_those_that_tensorflow_reads(name: str, of: str) -> None:
    row = KEPT["dtypes"][name]
    expected = _narrow(name, bytes.fromhex(row[of]))
    proto = _proto(row["number"], of)
    assert _raw(proto.SerializeToString()) == expected
    assert _raw(_one_by_one(proto, of)) == expected


def test_every_data_type_is_compared() -> None:
    kept = {row["number"] for row in KEPT["dtypes"].values()}
    assert kept == {number for number, dtype in TYPES.items() if dtype.bits}
    numeric = {each.name for each in schema.bundled().descriptor("tensorflow.TensorProto").fields}
    assert {name for name in numeric if name.endswith("_val")} - KEPT["values"].keys() == {
        "string_val",
        "resource_handle_val",
        "variant_val",
    }


def test_a_type_without_a_field_is_not_read_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPES, 1, TYPES[1].__class__("NEW", 32))
    with pytest.raises(Exception, match="NEW"):
        _raw(_proto(1, "float_val").SerializeToString())

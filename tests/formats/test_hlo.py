"""HLO: literals of all kinds and layouts, tuples, snapshots, constants of executables.

Fallback format: large fields of bytes and numbers of any typed message, by their paths.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse
from tests.support.tensors import elements, opened

import protoslice
from protoslice import open_model
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.formats import generic
from protoslice.formats.registry import formats_of, tensors_of
from protoslice.schema import bundled, from_descriptor_set
from protoslice.sources.files import BytesSource
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Model, RootProto

LITERAL: Any = bundled().message_class("xla.LiteralProto")
MODULE: Any = bundled().message_class("xla.HloModuleProto")
TYPES: Any = LITERAL.DESCRIPTOR.file.enum_types_by_name["PrimitiveType"].values_by_name


def shaped(kind: str, shape: tuple[int, ...], layout: tuple[int, ...] | None = None) -> Any:
    literal = LITERAL()
    literal.shape.element_type = TYPES[kind].number
    literal.shape.dimensions.extend(shape)
    literal.shape.layout.minor_to_major.extend(layout if layout is not None else reversed(range(len(shape))))
    return literal


def module(literal: Any) -> Any:
    program = MODULE(name="m")
    computation = program.computations.add(name="main")
    computation.instructions.add(name="constant.1", opcode="constant", literal=literal)
    return program


BYTES = {
    "S8": ("s8s", "i1"), "U8": ("u8s", "u1"), "S16": ("s16s", "<i2"), "U16": ("u16s", "<u2"), "F16": ("f16s", "<f2"),
    "BF16": ("bf16s", ml_dtypes.bfloat16), "F8E5M2": ("f8e5m2s", ml_dtypes.float8_e5m2),
    "F8E4M3": ("f8e4m3s", ml_dtypes.float8_e4m3), "F8E3M4": ("f8e3m4s", ml_dtypes.float8_e3m4),
    "F8E4M3FNUZ": ("f8e4m3fnuzs", ml_dtypes.float8_e4m3fnuz), "F8E5M2FNUZ": ("f8e5m2fnuzs", ml_dtypes.float8_e5m2fnuz),
    "F8E4M3B11FNUZ": ("f8e4m3b11fnuzs", ml_dtypes.float8_e4m3b11fnuz),
    "F8E8M0FNU": ("f8e8m0fnus", ml_dtypes.float8_e8m0fnu),
}  # fmt: skip


@pytest.mark.parametrize("kind", BYTES)
def test_types_that_are_bytes(tmp_path: Path, kind: str) -> None:
    field, dtype = BYTES[kind]
    values = np.arange(1, 7).astype(dtype).reshape(2, 3)
    literal = shaped(kind, (2, 3))
    setattr(literal, field, values.tobytes())
    model = opened(tmp_path, module(literal))
    assert model.read("main/constant.1").read() == values.tobytes()
    assert model.tensor("main/constant.1").shape == (2, 3)


NUMBERS = {
    "S32": ("s32s", "<i4"), "S64": ("s64s", "<i8"), "U32": ("u32s", "<u4"), "U64": ("u64s", "<u8"),
    "F32": ("f32s", "<f4"), "F64": ("f64s", "<f8"), "PRED": ("preds", "?"),
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_types_that_are_numbers(tmp_path: Path, kind: str) -> None:
    field, dtype = NUMBERS[kind]
    values = np.array([0, 1, 100, 2**31 - 1, 7, 3]).astype(dtype).reshape(3, 2)
    if values.dtype.kind == "i":
        values[0, 0] = -values[2, 0]
    literal = shaped(kind, (3, 2))
    getattr(literal, field).extend(values.ravel().tolist())
    model = opened(tmp_path, module(literal))
    assert model.read("main/constant.1").read() == values.tobytes()
    assert model.read("main/constant.1", "1:,0").read() == values[1:, 0].tobytes()


@pytest.mark.parametrize("kind", ["C64", "C128"])
def test_complex_numbers_are_pairs(tmp_path: Path, kind: str) -> None:
    values = np.array([1 + 2j, -3j], "<c8" if kind == "C64" else "<c16")
    literal = shaped(kind, (2,))
    getattr(literal, f"{kind.lower()}s").extend(values.view(values.real.dtype).tolist())
    assert opened(tmp_path, module(literal)).read("main/constant.1").read() == values.tobytes()


@pytest.mark.parametrize(("kind", "field"), [("S4", "s4s"), ("U4", "u4s"), ("S2", "s2s"), ("U1", "u1s")])
@pytest.mark.parametrize("packed", [False, True])
def test_narrow_types_lie_one_to_a_byte_or_packed(tmp_path: Path, kind: str, field: str, packed: bool) -> None:
    bits = int(kind[1:])
    values = [-1, 0, 1, -2, 0] if kind[0] == "S" else [1, 0, 1, 1, 0]
    masked = [value & (1 << bits) - 1 for value in values]
    stream = sum(value << bits * at for at, value in enumerate(masked)).to_bytes(-(-5 * bits // 8), "little")
    literal = shaped(kind, (5,))
    setattr(literal, field, stream if packed else bytes(masked))
    model = opened(tmp_path, module(literal))
    assert np.frombuffer(model.read("main/constant.1").read(), "i1").tolist() == values
    assert model.read("main/constant.1", form="packed").read() == stream


@pytest.mark.parametrize("layout", [(2, 1, 0), (0, 1, 2), (1, 2, 0), (0, 2, 1), ()])
def test_elements_are_in_the_order_of_the_layout(tmp_path: Path, layout: tuple[int, ...]) -> None:
    values = np.arange(24, dtype="<f4").reshape(2, 3, 4)
    literal = shaped("F32", values.shape, layout)
    literal.f32s.extend(values.transpose(layout[::-1]).ravel().tolist() if layout else values.ravel().tolist())
    model = opened(tmp_path, module(literal))
    assert model.read("main/constant.1").read() == values.tobytes()
    assert model.read("main/constant.1", "1,:,2").read() == values[1, :, 2].tobytes()


def test_dimensions_of_one_have_no_order(tmp_path: Path) -> None:
    literal = shaped("F32", (1, 3), (0, 1))
    literal.f32s.extend([1, 2, 3])
    model = opened(tmp_path, module(literal))
    ((_, _, length),) = model.read("main/constant.1").core.pieces()
    assert length == 12


def test_unpacked_numbers_in_another_layout(tmp_path: Path) -> None:
    literal = shaped("F32", (2, 2), (0, 1))
    data = literal.SerializeToString() + b"".join(b"\x45" + np.float32(each).tobytes() for each in (1, 3, 2, 4))
    program = MODULE(name="m")
    program.computations.add(name="c").instructions.add(name="i", opcode="constant")
    literal_field = b"\x42" + bytes([len(data)]) + data
    inner = b"\x0a\x01i" + literal_field
    computation = b"\x0a\x01c\x12" + bytes([len(inner)]) + inner
    path = tmp_path / "m.pb"
    path.write_bytes(b"\x0a\x01m\x1a" + bytes([len(computation)]) + computation)
    model = open_model(path, type="xla.HloModuleProto")
    assert np.frombuffer(model.read("c/i").read(), "<f4").tolist() == [1, 2, 3, 4]


def test_elements_of_tuples(tmp_path: Path) -> None:
    outer, inner = LITERAL(), LITERAL()
    outer.shape.element_type = inner.shape.element_type = TYPES["TUPLE"].number
    for value in (1, 2):
        scalar = shaped("F32", ())
        scalar.f32s.append(value)
        inner.tuple_literals.append(scalar)
    token = LITERAL()
    token.shape.element_type = TYPES["TOKEN"].number
    outer.tuple_literals.extend([token, inner])
    model = opened(tmp_path, module(outer))
    assert [each.name for each in model.matching()] == ["main/constant.1[1][0]", "main/constant.1[1][1]"]
    assert model.read("main/constant.1[1][1]").read() == np.float32(2).tobytes()


def test_arguments_and_results_of_snapshots(tmp_path: Path) -> None:
    one = shaped("F32", (1,))
    one.f32s.append(1)
    snapshot: Any = bundled().message_class("xla.HloSnapshot")()
    snapshot.hlo.hlo_module.CopyFrom(module(one))
    snapshot.arguments.extend([one, one])
    snapshot.result.CopyFrom(one)
    names = {each.name: each.holder for each in opened(tmp_path, snapshot).matching()}
    assert names == {
        "main/constant.1": "constant",
        "arguments[0]": "argument",
        "arguments[1]": "argument",
        "result": "result",
    }
    unoptimized: Any = bundled().message_class("xla.HloUnoptimizedSnapshot")()
    unoptimized.partitions.add().arguments.append(one)
    assert [each.name for each in opened(tmp_path, unoptimized).matching()] == ["partitions[0].arguments[0]"]


def test_constants_of_executables(tmp_path: Path) -> None:
    executable: Any = bundled().message_class("xla.gpu.GpuExecutableProto")(module_name="m")
    executable.constants.add(symbol_name="buffer_for_constant_1", allocation_index=3).content.data = bytes(range(9))
    executable.constants.add(allocation_index=4).content.data = b"ab"
    model = opened(tmp_path, executable)
    assert [each.name for each in model.matching()] == ["buffer_for_constant_1", "constants[1]"]
    tensor = model.tensor("buffer_for_constant_1")
    assert (tensor.dtype and tensor.dtype.name, tensor.shape) == ("U8", (9,))
    assert tensor.address == "path:constants[0].content.data"
    assert model.read(tensor).read() == bytes(range(9))


def test_literals_that_cannot_be_read(tmp_path: Path) -> None:
    cases: dict[str, tuple[Any, str]] = {}
    for name, kind, shape, layout, says in [
        ("count", "F32", (3,), None, "takes 12 bytes, but there are 4"),
        ("negative", "F32", (-1,), None, "Invalid dimension -1"),
        ("layout", "F32", (1, 1), (0, 0), "does not fit a tensor of rank 2"),
        ("opaque", "OPAQUE_TYPE", (), None, "element type 14"),
    ]:
        literal = shaped(kind, shape, layout)
        literal.f32s.append(1)
        cases[name] = literal, says
    program = MODULE(name="m")
    computation = program.computations.add(name="c")
    for name, (literal, _) in cases.items():
        computation.instructions.add(name=name, literal=literal)
    model = opened(tmp_path, program)
    for name, (_, says) in cases.items():
        with pytest.raises(Unsupported if name == "opaque" else CorruptModel, match=says):
            model.read(f"c/{name}").read()


KINDS = {
    "double": "F64", "float": "F32", "fixed32": "U32", "fixed64": "U64", "sfixed32": "I32", "sfixed64": "I64",
    "int32": "I32", "int64": "I64", "uint32": "U32", "uint64": "U64", "sint32": "I32", "sint64": "I64", "bool": "BOOL",
}  # fmt: skip
_NUMBERS = "".join(
    f'field {{ name: "{kind}s" number: {at} type: TYPE_{kind.upper()} label: LABEL_REPEATED }}'
    for at, kind in enumerate(KINDS, 20)
)
_FILE = f"""
name: "t.proto" package: "t" syntax: "proto3"
message_type {{
  name: "M"
  field {{ name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }}
  field {{ name: "data" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }}
  field {{ name: "list" number: 3 type: TYPE_BYTES label: LABEL_REPEATED }}
  field {{ name: "below" number: 4 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_REPEATED }}
  field {{ name: "blobs" number: 5 type: TYPE_MESSAGE type_name: ".t.M.BlobsEntry" label: LABEL_REPEATED }}
  field {{ name: "left" number: 6 type: TYPE_BYTES label: LABEL_OPTIONAL oneof_index: 0 }}
  field {{ name: "right" number: 7 type: TYPE_BYTES label: LABEL_OPTIONAL oneof_index: 0 }}
  {_NUMBERS}
  oneof_decl {{ name: "either" }}
  nested_type {{
    name: "BlobsEntry" options {{ map_entry: true }}
    field {{ name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }}
    field {{ name: "value" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }}
  }}
}}
"""
GENERIC_TYPES = from_descriptor_set(FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())]))
M: Any = GENERIC_TYPES.message_class("t.M")
LARGE = bytes(range(256)) * 256
SMALL = LARGE[:-1]


class Unread:
    """Bytes that must not be read after the index is made."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.sealed = False
        self._data = data

    def read(self, offset: int, length: int) -> bytes:
        assert not self.sealed
        return self._data[offset : offset + length]


def opened_generic(data: bytes) -> Tensors:
    source = BytesSource(data)
    proto = protoslice.open(source, "t.M", types=GENERIC_TYPES)
    model = Model("m.pb", "t.M", {"m.pb": source}, RootProto(proto.document, proto.sources))
    assert [each.name for each in formats_of(model)] == ["fields"]
    return tensors_of(model)


def summary(found: Tensors) -> dict[str, tuple[str | None, tuple[int, ...] | None]]:
    all_ = (found[number] for number in range(len(found)))
    return {each.name: (each.dtype.name if each.dtype else None, each.shape) for each in all_}


def value(found: Tensors, name: str) -> bytes:
    (number,) = found.numbers(name)
    assert found.numbers(f"path:{name}") == [number]
    return elements(found[number])


def test_fields_of_bytes_wherever_they_stand() -> None:
    message = M(name="m", data=LARGE, list=[b"", LARGE, SMALL, LARGE[::-1]])
    message.blobs["a"] = LARGE
    message.blobs["b"] = SMALL
    message.below.add(data=SMALL)
    message.below.add().below.add(data=LARGE[::-1])
    found = opened_generic(message.SerializeToString())
    due = {
        "data": LARGE,
        "list[1]": LARGE,
        "list[3]": LARGE[::-1],
        'blobs["a"]': LARGE,
        "below[1].below[0].data": LARGE[::-1],
    }
    assert summary(found) == {name: ("U8", (len(LARGE),)) for name in due}
    assert {name: value(found, name) for name in due} == due


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_numbers(kind: str) -> None:
    values = [(at * 7919) % (2 if kind == "bool" else 1 << 20) for at in range(70_000)]
    message = M()
    getattr(message, f"{kind}s").extend(values)
    getattr(message.below.add(), f"{kind}s").extend(values[:10])
    found = opened_generic(message.SerializeToString())
    name = KINDS[kind]
    assert summary(found) == {f"{kind}s": (name, (70_000,))}
    dtype = {"F": "f", "I": "i", "U": "u", "B": "?"}[name[0]] + ("" if kind == "bool" else str(int(name[1:]) // 8))
    assert value(found, f"{kind}s") == np.array(values).astype(dtype).tobytes()


def test_numbers_in_pieces_and_one_by_one() -> None:
    whole = M(floats=range(20_000)).SerializeToString()
    loose = b"".join(b"\xad\x01" + np.array(at, "<f4").tobytes() for at in range(3))
    found = opened_generic(whole + loose + whole)
    assert summary(found) == {"floats": ("F32", (40_003,))}
    assert value(found, "floats") == np.array([*range(20_000), 0, 1, 2, *range(20_000)], "<f4").tobytes()


def test_what_another_member_of_a_oneof_replaced_is_no_tensor() -> None:
    left, right = M(left=LARGE).SerializeToString(), M(right=LARGE).SerializeToString()
    assert set(summary(opened_generic(left + right))) == {"right"}
    assert set(summary(opened_generic(right + left))) == {"left"}
    assert set(summary(opened_generic(M(data=LARGE).SerializeToString() + M(data=SMALL).SerializeToString()))) == set()


def test_a_listing_reads_nothing_that_need_not_be_counted() -> None:
    message = M(data=LARGE, list=[LARGE] * 3 + [b"x"] * 10_000, floats=range(30_000))
    source = Unread(message.SerializeToString())
    proto = protoslice.open(source, "t.M", types=GENERIC_TYPES)
    source.sealed = True
    found = tensors_of(Model("m.pb", "t.M", {}, RootProto(proto.document, proto.sources)))
    assert len(summary(found)) == 5


def test_what_would_take_too_long_to_count_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "_MOST_COUNTED", 1000)
    found = opened_generic(M(int64s=range(70_000)).SerializeToString())
    with pytest.raises(LimitExceeded, match="too many to count its numbers"):
        value(found, "int64s")


def test_other_formats_come_first(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel"
    net: Any = protoslice.schema.bundled().message_class("caffe.NetParameter")(name="n")
    net.layer.add(name="l", type="T").blobs.add(data=[0.0] * 40_000)
    path.write_bytes(net.SerializeToString())
    with protoslice.open_model(path) as model:
        assert [each.name for each in model.matching()] == ["l.blobs[0]"]

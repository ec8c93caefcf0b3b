"""Paddle's models: files by a new writer of the layout are listed and read; invalid files are refused.

Paddle's parameter files alone: the tensors come from their headers, and the names from a separate list.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import MODELS, folder
from tests.support.paddle import TYPES, Parameter, blob, combined, filled, in_memory, json_program, program, variable
from tests.support.tensors import content

import protoslice
from protoslice import open_model, schema
from protoslice.detection import detect
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.formats import paddle, paddle_files
from protoslice.formats.paddle import Paddle
from protoslice.formats.paddle_files import Heads
from protoslice.formats.registry import formats_of, tensors_of
from protoslice.library.models import LocalModel, root_in
from protoslice.sources.files import BytesSource, Folder
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.listing import Tensors, row
from protoslice.tensors.model import Tensor, Unreadable
from protoslice.tensors.reading import place, read

Files = dict[str, bytes]
PARAMETERS = st.lists(
    st.builds(
        filled,
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1, max_size=5).filter(
            lambda name: name not in (".", "..") and len(name.encode()) < 200
        ),
        st.sampled_from(sorted(TYPES)),
        st.lists(st.integers(0, 4), max_size=3).map(tuple),
        levels=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=2).map(tuple),
    ),
    max_size=9,
    unique_by=lambda parameter: parameter.name,
)


def saved(parameters: list[Parameter], layout: str) -> Files:
    """Return the files of a model, the root first."""
    apart = {parameter.name: blob(parameter) for parameter in parameters}
    match layout:
        case "combined":
            return {"m.pdmodel": program(parameters), "m.pdiparams": combined(parameters)}
        case "old combined":
            return {"__model__": program(parameters), "__params__": combined(parameters)}
        case "json":
            return {"m.json": json_program(parameters), "m.pdiparams": combined(parameters)}
        case "separate json":
            return {"__model__.json": json_program(parameters), **apart}
        case _:
            return {"__model__": program(parameters), **apart}


def written(files: Files, folder: Path) -> LocalModel:
    """Open the model that consists of `files`; the first file is its root."""
    for path, data in files.items():
        (folder / path).write_bytes(data)
    root = next(iter(files))
    return open_model(folder, root, None if root.endswith("json") else paddle.PROGRAM)


def tensors(files: Files, folder: Path) -> Tensors:
    """Return the tensors of the model that consists of `files`."""
    return written(files, folder).tensors


LAYOUTS = ["combined", "old combined", "json", "separate json", "separate"]


@settings(max_examples=60)
@given(PARAMETERS, st.sampled_from(LAYOUTS))
def test_what_is_saved_is_listed_and_read(
    tmp_path_factory: pytest.TempPathFactory, parameters: list[Parameter], layout: str
) -> None:
    with written(saved(parameters, layout), tmp_path_factory.mktemp("model")) as model:
        found = list(model.matching())
        ordered = sorted(parameters, key=lambda parameter: parameter.name)
        facts = [(tensor.name, tensor.dtype, tensor.shape) for tensor in found]
        assert facts == [(each.name, DTYPES[each.dtype], each.shape) for each in ordered]
        for tensor, parameter in zip(found, ordered, strict=True):
            reading = read(tensor)
            assert content(reading.bytes) == parameter.data
            lies = place(tensor, reading.bytes, model.model.files)
            assert (lies is None) == (not parameter.data)
        assert len({tensor.address for tensor in found}) == len(found)


def test_the_address_is_where_a_parameter_is_declared(tmp_path: Path) -> None:
    parameters = [filled("b", "F32", (2,)), filled("a", "F32", (3,)), filled("c", "F32", (4,))]
    found = tensors(saved(parameters, "combined"), tmp_path)
    assert [found[number].address for number in range(3)] == [
        "path:blocks[1].vars[0]", "path:blocks[0].vars[0]", "path:blocks[0].vars[1]",
    ]  # fmt: skip
    found = tensors(saved(parameters, "json"), tmp_path)
    inside = "program.regions[0].blocks[0].ops"
    assert [found[number].address for number in range(3)] == [
        f"path:{inside}[1].regions[0].blocks[0].ops[0]", f"path:{inside}[0]", f"path:{inside}[2]",
    ]  # fmt: skip


def test_what_is_persistable_and_in_no_file(tmp_path: Path) -> None:
    parameters = [filled("w", "F32", (2,))]
    others = [variable(f"v{kind}", kind) for kind in (9, 10, 15, 17)]
    twice = program([*parameters, *parameters], others)
    found = tensors({"m.pdmodel": twice, "m.pdiparams": combined(parameters)}, tmp_path)
    assert [found[number].name for number in range(len(found))] == ["w"]


@pytest.mark.parametrize(("count", "name", "dims"), [(90, "x" * 60_000, 1), (1000, "x", 10_000), (250_000, "x", 1)])
def test_a_signature_has_bounds(tmp_path: Path, count: int, name: str, dims: int) -> None:
    """Long names, a long shape that is named often, and very many ends."""
    message = schema.bundled().message_class
    made: Any = message(paddle.PROGRAM).FromString(program([filled(name, "F32", (1,) * dims)]))
    for number in range(0, count, 1000):
        feed = made.blocks[0].ops.add(type="feed").outputs.add(parameter="Out")
        feed.arguments.extend([name] * min(1000, count - number) if len(name) == 1 else [name])
    for _ in range(count if len(name) > 1 else 0):
        made.blocks[0].ops.add(type="fetch").inputs.add(parameter="X", arguments=[name])
    with (
        written({"m.pdmodel": made.SerializeToString()}, tmp_path) as model,
        pytest.raises(LimitExceeded, match="list"),
    ):
        list(model.signatures())


def test_only_heads_are_read() -> None:
    read_at: list[tuple[int, int]] = []

    class Watched(BytesSource):
        """Bytes that record their readers."""

        def read(self, offset: int, length: int, /) -> bytes:
            """Read like `RangeSource.read`, and record the offset in `read_at`."""
            read_at.append((offset, length))
            return super().read(offset, length)

    parameters = [filled(f"p{number:03}", "F32", (50_000,)) for number in range(20)]
    heads = Heads(Watched(combined(parameters)), "m.pdiparams")
    blobs = [heads.next() for _ in parameters]
    heads.finish()
    assert blobs[-1].end == heads.size
    assert len(read_at) == 20
    assert sum(length for _, length in read_at) < heads.size // 40


def test_rows_of_a_sparse_gradient(tmp_path: Path) -> None:
    source = BytesSource((MODELS / "paddle_dtypes_separate" / "selected_rows.bin").read_bytes())
    heads = Heads(source, "selected_rows.bin")
    found = heads.next(rows=True)
    heads.finish()
    assert (found.shape, found.start, found.end) == ((2, 3), 50, 74)
    parameter = filled("g", "F32", (2, 3), rows=(0, 4))
    held = tensors({"__model__": program([parameter]), "g": blob(parameter)}, tmp_path)
    assert held[0].shape == (2, 3)
    assert content(read(held[0]).bytes) == parameter.data
    with pytest.raises(CorruptModel, match="cannot be stored in a combined file"):
        tensors({"__model__": program([parameter]), "__params__": blob(parameter)}, tmp_path)


GOOD = [filled("a", "F32", (2, 3)), filled("b", "I64", (4,), levels=((0, 2, 4),)), filled("c", "U8", (5,))]
AT_B = len(blob(GOOD[0]))


def with_number(offset: int, width: str, value: int) -> Callable[[bytes], bytes]:
    """Put a number into a file."""

    def put(data: bytes) -> bytes:
        number = struct.pack("<" + width, value)
        return data[:offset] + number + data[offset + len(number) :]

    return put


@pytest.mark.parametrize(
    ("damage", "words", "offset"),
    [
        (lambda data: data + b"\0", "1 bytes follow the last tensor", len(combined(GOOD))),
        (lambda data: data[:-1], "5 bytes expected, but only 4 remain", len(combined(GOOD)) - 5),
        (lambda data: data[: AT_B + 3], "4 bytes expected, but only 3 remain", AT_B),
        (lambda data: data[:AT_B], "The file ends before 'b': it should have 3 tensors", AT_B),
        (lambda data: b"", "The file ends before 'a'", 0),
        (with_number(0, "I", 1), "the blob has version 1", 0),
        (with_number(4, "Q", 1 << 60), "levels of detail", 4),
        (with_number(12, "I", 7), "the tensor has version 7", 12),
        (with_number(16, "i", -1), "invalid length of -1 bytes", 16),
        (with_number(16, "i", 0), "invalid length of 0 bytes", 16),
        (with_number(16, "i", (1 << 31) - 1), "invalid length of 2147483647 bytes", 16),
        (with_number(20, "B", 0xFF), "does not parse", 20),
        (with_number(21, "B", 25), "data type 25", 20),
        (with_number(23, "B", 3), "The data is .*, but 'a' should be F32 .2, 3.", 0),
        (with_number(AT_B + 12, "Q", 12), "takes 12 bytes, which is not a whole number", AT_B + 12),
        (with_number(AT_B + 12, "Q", 1 << 63), "bytes expected, but only", AT_B + 20),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused_with_the_place(
    damage: Callable[[bytes], bytes], words: str, offset: int, tmp_path: Path
) -> None:
    files = saved(GOOD, "combined")
    files["m.pdiparams"] = damage(files["m.pdiparams"])
    with pytest.raises((CorruptModel, Unsupported), match=words) as caught:
        tensors(files, tmp_path)
    assert (caught.value.offset, caught.value.path) == (offset, "m.pdiparams")


def test_names_in_another_order_are_noticed(tmp_path: Path) -> None:
    other = [GOOD[0], filled("bb", "I64", (4,)), GOOD[2], filled("aa", "F32", (1,))]
    with pytest.raises(
        CorruptModel, match=r"but 'aa' should be F32 .1.: the program and this file do not have the same parameters"
    ):
        tensors({"m.pdmodel": program(other), "m.pdiparams": combined(GOOD)}, tmp_path)


def test_a_file_of_its_own_goes_wrong_by_itself(tmp_path: Path) -> None:
    files = saved(GOOD, "separate")
    files["a"] += b"\0"
    del files["b"]
    found = tensors(files, tmp_path)
    wrong = [found[number].data for number in range(2)]
    assert isinstance(wrong[0], Unreadable)
    assert isinstance(wrong[0].error, CorruptModel)
    assert wrong[0].error.path == "a"
    assert isinstance(wrong[1], Unreadable)
    assert isinstance(wrong[1].error, NotFound)
    assert (found[1].dtype, found[1].shape) == (DTYPES["I64"], (4,))
    assert content(read(found[2]).bytes) == GOOD[2].data


def test_no_name_leads_out_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(blob(filled("w", "F32", (1,))))
    (tmp_path / "model").mkdir()
    for name in ("../w", "/etc/passwd", "a/../../w", "", "..\\w"):
        found = tensors({"__model__": program([filled(name, "F32", (1,))])}, tmp_path / "model")
        wrong = found[0].data
        assert isinstance(wrong, Unreadable), name
        assert isinstance(wrong.error, CorruptModel), name


def test_what_is_no_tensor_is_listed_and_cannot_be_read(tmp_path: Path) -> None:
    found = tensors({"__model__": program([], [variable("v", 27)])}, tmp_path)
    assert isinstance(found[0].data, Unreadable)
    with pytest.raises(Unsupported, match="type number 27"):
        read(found[0])


def test_a_model_without_its_parameters_says_where_they_should_be(tmp_path: Path) -> None:
    found = tensors({"m.pdmodel": program(GOOD)}, tmp_path)
    with pytest.raises(NotFound, match=r"'m\.pdiparams' for all parameters"):
        read(found[0])


@pytest.mark.parametrize("layout", ["combined", "separate"])
def test_pickles_are_not_opened(layout: str, tmp_path: Path) -> None:
    files = saved(GOOD, layout)
    root, *others = files
    model = {root: files[root]} | dict.fromkeys(others, PICKLE)
    with pytest.raises(Unsupported, match="a Python pickle, which is never loaded"):
        read(tensors(model, tmp_path)[0])


PICKLE = b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01x\x94."


@pytest.mark.parametrize(
    "text",
    [
        b'{"base_code":{"magic":"pir"},"program":',
        b'{"base_code":{"magic":"pir"}}',
        b'{"base_code":{"magic":"pir"},"program":[]}',
        b'{"base_code":{"magic":"pir"},"program":{"regions":7}}',
        b'{"base_code":{"magic":"pir"},"program":{"regions":[{"blocks":[{"ops":[{"#":"p","A":[1]}]}]}]}}',
        b'{"base_code":{"magic":"pir"},"program":{"regions":[{"blocks":[{"ops":[{"#":"p","A":["x"],"O":1}]}]}]}}',
        b'{"base_code":{"magic":"pir"},"program":' + b"[" * 100_000,
        b'{"base_code":{"magic":"pir"},"program":' + b'{"regions":[{"blocks":[{"ops":[' * 60,
        b'{"base_code":{"magic":"pir"},"program":' + b"9" * 10_000 + b"}",
        b'{"base_code":{"magic":"pir"},"program":"\xff"}',
    ],
)
def test_json_that_is_no_program(text: bytes) -> None:
    with pytest.raises(CorruptModel, match="Not a program in Paddle 3's JSON"):
        Paddle().tensors(in_memory({"m.json": text}))


def test_json_without_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle, "_MOST_JSON", 100)
    with pytest.raises(LimitExceeded, match="at most 100"):
        Paddle().tensors(in_memory(saved(GOOD, "json")))


def test_other_json_is_no_program() -> None:
    assert not Paddle().matches(in_memory({"m.json": b'{"config": {}}'}))
    assert not Paddle().matches(in_memory({"m.json": b""}))
    assert Paddle().matches(in_memory({"m.json": json_program([])}))


OLD = b"""
blocks { idx: 0 parent_idx: -1  # lod_tensor
  vars { name: "lod_tensor" persistable: true
    type { type: LOD_TENSOR lod_tensor { tensor { data_type: FP32 dims: 2 } lod_level: 1 } } }
  vars { name: "LOD_TENSOR" type { type: LOD_TENSOR_ARRAY tensor_array { tensor { data_type: FP32 } lod_level: 2 } } }
  vars { name: 'r"#lod_level' type { type: READER reader { lod_tensor { tensor { data_type: FP32 } } } } }
}
"""


def test_names_of_version_2_are_read_in_text(tmp_path: Path) -> None:
    message: Any = schema.bundled().message_class(paddle.PROGRAM)
    (tmp_path / "m.pbtxt").write_bytes(OLD)
    with protoslice.open(tmp_path / "m.pbtxt", paddle.PROGRAM) as proto:
        one, two, three = message.FromString(proto.rope.read()).blocks[0].vars
    assert (one.name, two.name, three.name) == ("lod_tensor", "LOD_TENSOR", 'r"#lod_level')
    assert (one.type.type, two.type.type) == (7, 13)
    assert (one.type.dense_tensor.legacy_lod_level, two.type.tensor_array.legacy_lod_level) == (1, 2)
    assert len(three.type.reader.dense_tensor) == 1


def test_names_of_version_2_lead_where_the_present_ones_do(tmp_path: Path) -> None:
    (tmp_path / "m.pbtxt").write_bytes(OLD)
    with protoslice.open(tmp_path / "m.pbtxt", paddle.PROGRAM) as proto:
        for old in (
            "blocks[0].vars[0].type.lod_tensor.tensor",
            "blocks[0].vars[0].type.lod_tensor.lod_level",
            "blocks[0].vars[2].type.reader.lod_tensor[0]",
        ):
            now = old.replace("lod_tensor", "dense_tensor").replace("lod_level", "legacy_lod_level")
            assert proto.merge(old).read() == proto.merge(now).read() != b""
        kept = proto.merge("blocks[0].vars[0]", ["type.lod_tensor.lod_level"]).read()
        assert kept == proto.merge("blocks[0].vars[0]", ["type.dense_tensor.legacy_lod_level"]).read() != b""
        with pytest.raises(NotFound, match=r"has no field .lod_tensors."):
            proto.merge("blocks[0].vars[0].type.lod_tensors")


@pytest.mark.parametrize("ending", ["", ".pbtxt", ".textproto", ".txtpb", ".pdmodel", ".pdmodel.pbtxt", ".pb"])
def test_the_parameters_of_a_program_are_called_like_it(ending: str) -> None:
    assert paddle._combined(f"m/model{ending}") == ("m/model.pdiparams", "m/__params__")


def test_a_program_in_text_finds_its_parameters(tmp_path: Path) -> None:
    parameters = [filled("a", "F32", (2,)), filled("b", "I64", ())]
    message = schema.parsed(schema.bundled().message_class(paddle.PROGRAM), program(parameters))
    (tmp_path / "model.pbtxt").write_text(str(message))
    (tmp_path / "model.pdiparams").write_bytes(combined(parameters))
    with open_model(tmp_path / "model.pbtxt", type=paddle.PROGRAM) as model:
        assert [model.read(each.name).read() for each in parameters] == [each.data for each in parameters]


def value(number: int, shape: list[int]) -> Any:
    return {"%": number, "TT": {"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, shape, "NCHW", [], 0]}}


def operation(kind: str, takes: list[int], makes: list[Any], regions: Any = (), **attributes: Any) -> Any:
    set_ = [{"N": name, "AT": {"#": "0.a", "D": each}} for name, each in attributes.items()]
    taken = [{"%": number} for number in takes]
    return {"#": kind, "A": set_, "I": taken, "O": makes, "regions": regions}


def parameter(number: int, name: str) -> Any:
    return {"#": "p", "A": [0, 1, 1, name], "O": value(number, [3])}


def regions(operations: list[Any], args: Any = ()) -> Any:
    return [{"#": "r", "blocks": [{"#": "b", "args": args, "ops": operations}]}]


def written_in_json(operations: list[Any]) -> bytes:
    text = {"base_code": {"magic": "pir", "version": 4}, "program": {"regions": regions(operations)}}
    return json.dumps(text).encode()


def test_a_json_program_is_the_same_program_in_protobuf() -> None:
    inner = [operation("1.scale", [2, 5], [value(6, [])]), operation("2.yield", [6], [])]
    attributes = {
        "n": 7,
        "x": 0.5,
        "on": True,
        "to": "a\ud800",
        "ints": [{"#": "0.a_i64", "D": 1 << 40}],
        "huge": 1 << 70,
    }
    data = written_in_json(
        [
            parameter(1, "w"),
            operation("1.data", [], [value(2, [-1, 3])], name="image"),
            operation("1.conv", [2, 1, 0], [value(3, [1]), {"%": 4, "TT": {"#": "0.t_vec", "D": []}}], **attributes),
            operation("1.if", [3], [value(7, [])], regions(inner, [value(5, [2])])),
        ]
    )
    proto = paddle.json_as_proto(BytesSource(data))
    rope = Rope(proto.document.view()[2], proto.sources)
    message = schema.parsed(schema.bundled().message_class(paddle.PROGRAM), rope.read())
    outer, nested = message.blocks
    assert (outer.idx, outer.parent_idx, nested.idx, nested.parent_idx) == (0, -1, 1, 0)
    assert [each.type for each in outer.ops] == ["data", "conv", "if"]
    conv = outer.ops[1]
    assert [list(each.arguments) for each in conv.inputs] == [["image"], ["w"]]
    assert [list(each.arguments) for each in conv.outputs] == [["%3"], ["%4"]]
    found = {each.name: each for each in conv.attrs}
    assert (found["n"].l, found["x"].float64, found["on"].b, found["to"].s) == (7, 0.5, True, "a\\ud800")
    assert (list(found["ints"].longs), found["huge"].s) == ([1 << 40], str(1 << 70))
    assert [each.block_idx for each in outer.ops[2].attrs] == [1]
    assert [each.name for each in nested.vars] == ["%5", "%6"]
    assert [list(each.arguments) for op in nested.ops for each in op.inputs] == [["image"], ["%5"], ["%6"]]
    declared = {each.name: each for each in outer.vars}
    assert [name for name, each in declared.items() if each.persistable] == ["w"]
    assert list(declared["image"].type.dense_tensor.tensor.dims) == [-1, 3]
    assert not declared["%4"].type.HasField("dense_tensor")


def test_a_long_name_of_a_json_program_is_not_written_everywhere() -> None:
    takers = [operation("1.op", [1] * 100, []) for _ in range(20)]
    data = written_in_json([parameter(1, "w" * 40_000), *takers])
    with pytest.raises(LimitExceeded, match="names of values"):
        paddle.json_as_proto(BytesSource(data))


def test_a_signature_of_a_json_program_has_bounds(tmp_path: Path) -> None:
    data = written_in_json([operation("1.data", [], [value(n, [])], name="x" * 60_000) for n in range(1, 91)])
    with written({"m.json": data}, tmp_path) as model, pytest.raises(LimitExceeded, match="list"):
        list(model.signatures())


@pytest.mark.parametrize("seed", range(300))
def test_damaged_json_programs_are_refused_or_read(seed: int) -> None:
    rng = random.Random(seed)
    program: Any = json.loads((MODELS / "paddle_pir_json" / "inference.json").read_bytes())
    for _ in range(rng.randrange(1, 4)):
        holder: Any = program
        key: Any = "program"
        at = program[key]
        while isinstance(at, dict | list) and at and (rng.random() > 0.05):
            key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            holder, at = at, at[key]
        holder[key] = rng.choice([None, [], {}, "", "\ud800", -1, 1 << 70, 0.5, True, [[]], {"%": 1}])
    with suppress(CorruptModel):
        paddle.json_as_proto(BytesSource(json.dumps(program).encode()))


FILLED = st.lists(
    st.builds(
        filled,
        st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=5),
        st.sampled_from(sorted(TYPES)),
        st.lists(st.integers(0, 4), max_size=3).map(tuple),
        levels=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=9,
    unique_by=lambda parameter: parameter.name,
)
THREE = [filled("a"), filled("b", "I64", (4,), levels=((0, 2, 4),)), filled("c", "U8", (5,))]


def tensors_in(files: Files) -> Tensors:
    """Return the tensors of the model that consists of `files`."""
    return tensors_of(in_memory(files))


def names(found: Tensors) -> list[str]:
    return [found[number].name for number in range(len(found))]


@settings(max_examples=60)
@given(FILLED, st.booleans())
def test_a_file_has_as_many_tensors_as_it_holds(parameters: list[Parameter], named: bool) -> None:
    ordered = sorted(parameters, key=lambda parameter: parameter.name)
    listed = "".join(f"{each.name}\n" for each in ordered).encode()
    data = combined(parameters)
    assert detect(data, "upload", len(data)).kind == "paddle"
    found = tensors_in({"m.pdiparams": data} | ({"m.pdiparams.names": listed} if named else {}))
    assert len(found) == len(parameters)
    for number, parameter in enumerate(ordered):
        tensor = found[number]
        assert (tensor.dtype, tensor.shape) == (DTYPES[parameter.dtype], parameter.shape)
        assert content(read(tensor).bytes) == parameter.data
        assert tensor.address == f"path:tensor[{number}]"
        assert tensor.name == (parameter.name if named else f"tensor[{number}]")
        assert list(found.numbers(tensor.name)) == list(found.numbers(tensor.address)) == [number]


def test_a_tensor_alone_in_its_file_is_called_like_it() -> None:
    assert names(tensors_in({"sub/fc_0.w_0": blob(filled("fc_0.w_0"))})) == ["fc_0.w_0"]
    assert names(tensors_in({"m.pdiparams": blob(filled("a"))})) == ["tensor[0]"]
    assert names(tensors_in({"__params__": blob(filled("a"))})) == ["tensor[0]"]


def test_selected_rows_alone() -> None:
    data = (MODELS / "paddle_dtypes_separate" / "selected_rows.bin").read_bytes()
    found = tensors_in({"selected_rows.bin": data})[0]
    assert (found.name, found.shape, content(read(found).bytes)) == ("selected_rows.bin", (2, 3), data[50:74])
    with pytest.raises(CorruptModel, match="bytes follow the last tensor"):
        tensors_in({"selected_rows.bin": data + data})


@pytest.mark.parametrize("case", ["paddle_combined", "paddle_dtypes_combined", "paddle_pir_json"])
def test_a_file_of_paddles_own_without_its_program(case: str, tmp_path: Path) -> None:
    (file,) = folder(case).glob("*.pdiparams")
    (tmp_path / file.name).write_bytes(file.read_bytes())
    (root,) = (
        path for path in folder(case).iterdir() if path.suffix in {".pdmodel", ".json"} and path.stem == file.stem
    )
    with open_model(tmp_path) as alone, open_model(folder(case), root.name) as whole:
        assert alone.model.root == file.name
        assert [(each.dtype, each.shape, content(read(each).bytes)) for each in alone.matching()] == [
            (each.dtype, each.shape, content(read(each).bytes)) for each in whole.matching()
        ]


@pytest.mark.parametrize("name", ["m.pdmodel", "m.json", "__model__"])
def test_beside_a_program_the_program_is_the_root(name: str, tmp_path: Path) -> None:
    parameters = [filled("a", shape=(1000,)), filled("b")]
    (tmp_path / name).write_bytes(json_program(parameters) if name.endswith("json") else program(parameters))
    (tmp_path / "m.pdiparams").write_bytes(combined(parameters))
    (tmp_path / "a").write_bytes(blob(parameters[0]))
    assert root_in(Folder(tmp_path)) == name


def test_names_are_as_many_as_tensors() -> None:
    for text, offset in ((b"a\nb\n", 0), (b"a\nb\nc\n\n", 0), (b"a\n\xff\nc\n", 2)):
        with pytest.raises(CorruptModel) as caught:
            tensors_in({"m.pdiparams": combined(THREE), "m.pdiparams.names": text})
        assert (caught.value.path, caught.value.offset) == ("m.pdiparams.names", offset)
    assert names(tensors_in({"m.pdiparams": combined(THREE), "m.pdiparams.names": b"x\r\ny z\r\n\r\n"})) == [
        "x",
        "y z",
        "",
    ]


def test_no_more_tensors_than_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle_files, "_MOST", 3)
    assert len(tensors_in({"m.pdiparams": combined(THREE)})) == 3
    with pytest.raises(LimitExceeded, match="more than 3 tensors"):
        tensors_in({"m.pdiparams": combined([*THREE, filled("d")])})
    monkeypatch.setattr(paddle_files, "_MOST_NAMES", 3)
    with pytest.raises(LimitExceeded, match="at most 3 bytes, but this one has 5"):
        tensors_in({"m.pdiparams": combined(THREE), "m.pdiparams.names": b"a\nb\nc"})


def test_what_is_no_parameter_file_is_not_taken_for_one() -> None:
    good = combined(THREE)
    assert detect(good, None, len(good)).kind == "paddle"
    for data in (
        bytes(10_000),
        good[:21],
        b"\1" + good[1:],
        good[:12] + b"\1" + good[13:],
        good[:20] + b"\x10" + good[21:],
        good[:21] + b"\x7f" + good[22:],
        good[:22] + b"\x18" + good[23:],
    ):
        assert detect(data, "m.pdiparams", len(data)).kind == "unknown", data[:30]
        assert formats_of(in_memory({"m.pdiparams": data})) == []


def test_damage_behind_the_first_head_is_told_with_its_place() -> None:
    at = len(blob(THREE[0]))
    data = combined(THREE)
    with pytest.raises(CorruptModel, match="version 7") as caught:
        tensors_in({"m.pdiparams": data[:at] + b"\7" + data[at + 1 :]})
    assert (caught.value.offset, caught.value.path) == (at, "m.pdiparams")
    with pytest.raises(CorruptModel, match="5 bytes expected, but only 4 remain"):
        tensors_in({"m.pdiparams": data[:-1]})


def told(tensor: Tensor, form: str) -> dict[str, Any]:
    """Return the facts of a tensor, as JSON has them."""
    found: dict[str, Any] = json.loads(content(read(tensor, None, form).bytes))
    return found


@settings(max_examples=60)
@given(FILLED)
def test_levels_of_detail_are_those_that_were_saved(parameters: list[Parameter]) -> None:
    ordered = sorted(parameters, key=lambda parameter: parameter.name)
    found = tensors_in({"m.pdiparams": combined(parameters)})
    for number, parameter in enumerate(ordered):
        levels = {"levels": [list(level) for level in parameter.levels]}
        assert told(found[number], "lod") == levels
        assert told(found[number], "json") == json.loads(json.dumps(row(found[number]))) | {"stored": levels}
        with pytest.raises(InvalidInput, match="leave out the slice"):
            read(found[number], "...", "lod")


@pytest.mark.parametrize("layout", ["combined", "separate"])
def test_a_program_has_the_levels_of_its_parameters(layout: str, tmp_path: Path) -> None:
    (tmp_path / "__model__").write_bytes(program(THREE))
    for parameter in THREE:
        (tmp_path / parameter.name).write_bytes(blob(parameter))
    if layout == "combined":
        (tmp_path / "__params__").write_bytes(combined(THREE))
    with open_model(tmp_path) as model:
        assert [told(each, "lod")["levels"] for each in model.matching()] == [[], [[0, 2, 4]], []]


def test_levels_of_a_file_of_paddles_own() -> None:
    with open_model(folder("paddle_dtypes_separate"), "lod_one") as model:
        assert told(model.tensor("lod_one"), "lod") == {"levels": [[0, 2, 5]]}
    with open_model(folder("paddle_dtypes_separate"), "selected_rows.bin") as model:
        assert told(model.tensor("selected_rows.bin"), "lod") == {"rows": [0, 4], "height": 10}


def test_levels_without_bounds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tensors_in({"m.pdiparams": combined([filled("a", levels=((0, 1), (0, 2)))])})
    monkeypatch.setattr(paddle_files, "_MOST_NUMBERS", 4)
    assert told(found[0], "lod") == {"levels": [[0, 1], [0, 2]]}
    monkeypatch.setattr(paddle_files, "_MOST_NUMBERS", 3)
    with pytest.raises(LimitExceeded, match=r"than 3 numbers: download the file to read them \(at byte 44"):
        read(found[0], None, "lod")


def test_other_formats_have_no_levels() -> None:
    with open_model(folder("onnx_types_raw")) as model, pytest.raises(NotFound, match="no levels of detail"):
        read(model.tensors[0], None, "lod")


def test_files_of_one_tensor_each_are_one_model(tmp_path: Path) -> None:
    parameters = [filled(f"block.{number}/w" if number % 2 else f"w_{number}", shape=(number,)) for number in range(20)]
    for parameter in parameters:
        path = tmp_path / "model" / parameter.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob(parameter))
    (tmp_path / "model/notes.txt").write_text("no parameter")
    (tmp_path / "model/w_3x").write_bytes(blob(parameters[3]) + b"?")
    with open_model(tmp_path / "model") as model:
        found = {tensor.name: tensor for tensor in model.matching()}
        assert found.keys() == {*(each.name for each in parameters), "w_3x"}
        for parameter in parameters:
            assert content(read(found[parameter.name]).bytes) == parameter.data
            assert found[parameter.name].file == parameter.name
            assert model.tensor(parameter.name).address == found[parameter.name].address
        fault = found["w_3x"].data
        assert isinstance(fault, Unreadable)
        assert "follow the last tensor" in fault.error.message


def test_files_beside_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: blob(filled(name)) for name in "abcd"}
    assert len(tensors_in(files)) == 4
    monkeypatch.setattr(paddle_files, "_MOST_FILES", 3)
    with pytest.raises(LimitExceeded, match="at most 3"):
        tensors_in(files)

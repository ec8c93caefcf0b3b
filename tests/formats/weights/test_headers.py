"""Headers of safetensors and GGUF files: what is refused, and that damage of any kind is an error of the model."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.support.golden import folder

from protoslice.detection.magic import GGUF, SAFETENSORS
from protoslice.errors import OF_MODELS, CorruptModel, LimitExceeded, ProtosliceError, Unsupported
from protoslice.formats.headers import message_of
from protoslice.formats.registry import tensors_of
from protoslice.sources.files import BytesSource
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import MissingFile, Model, Unreadable
from protoslice.tensors.reading import read

ROOTS = {SAFETENSORS: "a.safetensors", GGUF: "a.gguf"}


class Bounded(BytesSource):
    """Bytes of which no read asks for more than there are; a read says where it ends."""

    def read(self, offset: int, length: int, /) -> bytes:
        assert offset >= 0
        assert length >= 0
        assert offset + length <= self.size
        return super().read(offset, length)


def tensors(data: bytes, kind: str = SAFETENSORS, **more: bytes) -> Tensors:
    files = {ROOTS[kind]: data, **{name.replace("__", "."): each for name, each in more.items()}}
    return tensors_of(Model(ROOTS[kind], kind, {name: Bounded(each) for name, each in files.items()}, None))


def safetensors(header: object, data: int = 0) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def entry(start: int, end: int, shape: Any = None, dtype: Any = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x08\0\0", "at least 8 bytes"),
        (struct.pack("<Q", 1 << 62) + b"{}", "the file has 10"),
        (struct.pack("<Q", 100) + b"{}", "the file has 10"),
        (safetensors(b"[]"), "begins with {"),
        (safetensors(b"{"), "name of a tensor"),
        (safetensors(b'{"a"'), "name of a tensor"),
        (safetensors(b"{} x"), "end of the header"),
        (safetensors(b'{"\xff":1}'), "not UTF-8"),
        (safetensors(b'{"\\ud800":' + json.dumps(entry(0, 1)).encode() + b"}", 1), "a name is not valid text"),
        (safetensors(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"), "expected an object"),
        (safetensors(b'{"a":{"dtype":' + b"[" * 4000 + b"}}"), "expected an object"),
        (safetensors({"a": 1}), "expected an object"),
        (safetensors({"a": {"dtype": "U8", "shape": []}}), "expected an object"),
        (safetensors({"a": entry(0, 1, dtype=7)}, 1), "expected a dtype"),
        (safetensors({"a": entry(0, 1, [True])}, 1), "expected a dtype"),
        (safetensors({"a": entry(0, 1, [-1])}, 1), "expected a dtype"),
        (safetensors({"a": entry(0, 1, [1.0])}, 1), "expected a dtype"),
        (safetensors({"a": entry(0, 1, [1 << 40, 1 << 40])}, 1), "too many elements"),
        (safetensors({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}}), "are invalid"),
        (safetensors({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1 << 80]}}), "expected a dtype"),
        (safetensors({"a": entry(0, 2), "b": entry(1, 3)}, 3), "'a' and 'b' overlap"),
        (safetensors({"a": entry(0, 1), "b": entry(2, 3)}, 3), "a gap of 1 bytes before the tensor 'b'"),
        (safetensors({"a": entry(1, 2)}, 2), "a gap of 1 bytes"),
        (safetensors({"a": entry(0, 1)}, 9), "8 bytes follow the last tensor"),
        (safetensors(b'{"a":%b,"a":[]}' % json.dumps(entry(0, 1)).encode(), 1), "expected an object"),
        (safetensors({"a": entry(0, 1) | {"x": "y" * 20_000}, "b": 1}, 1), "expected an object"),
        (safetensors(b'{"a":{"x":"%b","y":z}}' % (b"y" * 20_000)), "expected an object"),
        (safetensors({"__metadata__": {"a": 1}}), "a string for each key"),
        (safetensors({"__metadata__": []}), "an object of strings"),
    ],
)
def test_damaged_safetensors_headers_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(CorruptModel, match=words) as caught:
        tensors(data)
    assert caught.value.path is not None


def test_a_safetensors_header_has_a_limit() -> None:
    source = BytesSource(struct.pack("<Q", 99_000_000) + b"{")
    source.size = 1 << 40  # of which only the first bytes may be read
    with pytest.raises(LimitExceeded, match="at most 67108864 bytes, not 99000000"):
        tensors_of(Model("a.safetensors", SAFETENSORS, {"a.safetensors": source}, None))


def test_spelling_of_a_safetensors_header_is_free() -> None:
    text = ' \n"\\u0061\\n" : { "shape" : [ 2 ,3 ] ,\t"data_offsets":[0, 6],"dtype":"U8"} , "__metadata__":{ } }   '
    (found,) = [each for each in (tensors(safetensors(b"{" + text.encode(), 6))[0],)]
    assert (found.name, found.shape, found.address) == ("a\n", (2, 3), "tensor:a\n")
    assert len(tensors(safetensors(b"{}"))) == len(tensors(safetensors(b"{ \n}   "))) == 0


def test_a_cut_file_has_the_tensors_that_are_whole() -> None:
    found = tensors(safetensors({"a": entry(0, 4), "b": entry(4, 8)}, 6))
    assert not isinstance(found[0].data, Unreadable)
    assert isinstance(found[1].data, Unreadable)
    with pytest.raises(CorruptModel, match="ends at byte"):
        read(found[1])


def test_an_unknown_type_is_an_error_of_its_tensor() -> None:
    header = {"a": entry(0, 4, [1], "F33"), "b": entry(4, 8), "c": entry(8, 9, [2]), "d": entry(9, 11, [3], "F4")}
    found = tensors(safetensors(header, 11))
    for number, words in ((0, "the unknown type 'F33'"), (2, "takes 2 bytes, but there are 1"), (3, "within a byte")):
        with pytest.raises(CorruptModel, match=words):
            read(found[number])
    assert read(found[1]).bytes.size == 4


def test_an_index_names_what_is_missing() -> None:
    name = "model.safetensors.index.json"
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}}
    files = {name: BytesSource(json.dumps(index).encode())}
    files["one.safetensors"] = BytesSource(safetensors({"a": entry(0, 1)}, 1))
    found = tensors_of(Model(name, SAFETENSORS, files, None))
    names = [found[number].name for number in range(3)]
    assert sorted(names) == ["a", "b", "c"]
    with pytest.raises(MissingFile, match=r"'two\.safetensors', which lacks it or is absent"):
        read(found[names.index("b")])


@pytest.mark.parametrize("location", ["../x.safetensors", "/etc/passwd", "a/../../b", "\\b"])
def test_an_index_leads_nowhere_else(location: str) -> None:
    name = "m/model.safetensors.index.json"
    files = {name: BytesSource(json.dumps({"weight_map": {"a": location}}).encode())}
    with pytest.raises(CorruptModel, match="outside of the model"):
        tensors_of(Model(name, SAFETENSORS, files, None))


def test_a_tensor_is_in_one_file_only() -> None:
    files = {f"m-0000{number}-of-00002.safetensors": safetensors({"a": entry(0, 1)}, 1) for number in (1, 2)}
    sources = {name: BytesSource(data) for name, data in files.items()}
    with pytest.raises(CorruptModel, match="'a' is in more than one file"):
        tensors_of(Model(next(iter(files)), SAFETENSORS, sources, None))
    del sources["m-00002-of-00002.safetensors"]
    with pytest.raises(MissingFile):
        tensors_of(Model(next(iter(files)), SAFETENSORS, sources, None))


# GGUF


def text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def info(name: bytes, shape: list[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(keys: list[bytes] = [], infos: list[bytes] = [], data: int = 0, version: int = 3) -> bytes:  # noqa: B006
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(keys)) + b"".join([*keys, *infos])
    return head + bytes(-len(head) % 32) + bytes(data)


def listed(depth: int) -> bytes:
    return b"".join(struct.pack("<IQ", 9, 1) for _ in range(depth)) + struct.pack("<IQ", 0, 0)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"GGUF", CorruptModel, "only 4"),
        (gguf(version=1), Unsupported, "version 1 is not supported"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), LimitExceeded, "more than 1048576 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), LimitExceeded, "at most 65536 keys"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 20, 0), CorruptModel, "the file has only"),
        (gguf([key(b"a", 99, b"")]), CorruptModel, "no type 99"),
        (gguf([key(b"a", 8, struct.pack("<Q", 1 << 63))]), CorruptModel, "the file has only"),
        (gguf([key(b"a", 9, struct.pack("<IQ", 10, 1 << 62))]), CorruptModel, "the file has only"),
        (gguf([key(b"a", 9, struct.pack("<IQ", 8, 1 << 62))]), LimitExceeded, "more than 4194304 strings"),
        (gguf([key(b"a", 9, struct.pack("<IQ", 9, 1 << 62))]), LimitExceeded, "more than 4194304 strings"),
        (gguf([key(b"a", 9, listed(9))]), LimitExceeded, "nested more than 8 deep"),
        (gguf([key(b"a", 0, b"\0"), key(b"a", 0, b"\0")]), CorruptModel, "'a' is repeated"),
        (gguf([key(b"general.alignment", 4, bytes(4))]), CorruptModel, "Invalid general.alignment 0"),
        (gguf([key(b"general.alignment", 4, b"\x07\0\0\0")]), CorruptModel, "Invalid general.alignment 7"),
        (gguf([key(b"general.alignment", 8, text(b"x"))]), CorruptModel, "is a string, but it must be a uint32"),
        (gguf([key(b"general.alignment", 7, b"\1")]), CorruptModel, "is a bool, but it must be a uint32"),
        (gguf([key(b"general.alignment", 6, bytes(4))]), CorruptModel, "is a float32, but it must be a uint32"),
        (gguf([key(b"general.alignment", 10, b"\x20" + bytes(7))]), CorruptModel, "is a uint64, but"),
        (gguf([key(b"general.alignment", 9, listed(1)[:12])]), CorruptModel, "is a list, but it must be a uint32"),
        (gguf([], [info(b"a", [1] * 9, 0, 0)]), CorruptModel, "9 dimensions"),
        (gguf([], [info(b"a", [1 << 40, 1 << 40], 0, 0)]), CorruptModel, "too many elements"),
        (gguf([], [info(b"a", [31], 2, 0)]), CorruptModel, "blocks of 32 elements"),
        (gguf([], [info(b"a", [16], 0, 0), info(b"b", [8], 0, 32)], 64), CorruptModel, "'a' and 'b' overlap"),
        (gguf([], [info(b"a", [8], 0, 0), info(b"a", [8], 0, 32)], 64), CorruptModel, "have the same name"),
        (gguf([], [info(b"a" * 70_000, [8], 0, 0)], 64), CorruptModel, "at most 65535"),
    ],
)
def test_damaged_gguf_headers_are_refused(data: bytes, error: type[ProtosliceError], words: str) -> None:
    with pytest.raises(error, match=words):
        tensors(data, GGUF)


def test_gguf_tensors_that_do_not_fit_are_faults() -> None:
    infos = [
        info(b"far", [8], 0, 1 << 50),
        info(b"odd", [8], 0, 8),
        info(b"new", [8], 99, 64),
        info(b"fine", [8], 0, 96),
    ]
    found = tensors(gguf([], infos, 128), GGUF)
    for number, words in enumerate(("ends at byte", "not aligned to 32", "unknown type 99")):
        data = found[number].data
        assert isinstance(data, Unreadable)
        assert words in str(data.error)
    assert read(found[3]).bytes.size == 32


def test_gguf_metadata_is_a_tree_of_values() -> None:
    from protoslice import schema

    nested = struct.pack("<IQ", 9, 2) + struct.pack("<IQbb", 1, 2, -1, 2) + struct.pack("<IQ", 8, 1) + text(b"\xff")
    data = gguf([key(b"x", 9, nested), key(b"pi", 12, struct.pack("<d", 3.25)), key(b"on", 7, b"\1")])
    found: Any = schema.bundled().message_class(GGUF).FromString(message_of(BytesSource(data), "a", GGUF))
    assert (found.version, found.metadata["pi"].number, found.metadata["on"].truth) == (3, 3.25, True)
    first, second = found.metadata["x"].list.lists
    assert (list(first.integers), list(second.texts)) == ([-1, 2], ["\\xff"])


# Damage of any kind


def swallow(work: Callable[[], object]) -> bool:
    try:
        work()
    except OF_MODELS:
        return False
    return True


def everything(data: bytes, kind: str) -> None:
    found = tensors(data, kind)
    for number in range(min(len(found), 200)):
        tensor = found[number]
        if not isinstance(tensor.data, Unreadable):
            reading = read(tensor)
            size = reading.bytes.size
            reading.bytes.read(0, min(size, 64))


@pytest.mark.parametrize(
    ("case", "root", "kind"),
    [
        ("safetensors_types", "a.safetensors", SAFETENSORS),
        ("gguf_types", "a.gguf", GGUF),
        ("gguf_big_endian", "a.gguf", GGUF),
    ],
)
def test_mutated_headers_are_read_or_refused(case: str, root: str, kind: str) -> None:
    data, random = (folder(case) / root).read_bytes(), Random(case)
    head, fine = min(len(data), 6000), 0
    for _ in range(1500):
        mutated = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 8))):
            at = random.randrange(min(head, len(mutated)))
            match random.randrange(5):
                case 0:
                    mutated[at] ^= 1 << random.randrange(8)
                case 1:
                    mutated[at : at + 8] = random.choice((0, 1, 0xFF, 0x7F)).to_bytes(1) * 8
                case 2:
                    del mutated[at : at + random.randrange(1, 40)]
                case 3:
                    mutated[at:at] = mutated[at - 20 : at]
                case _:
                    mutated[at : at + 1] = random.choice(b'{}[],:"0919\\').to_bytes(1)
        fine += swallow(lambda bytes_=bytes(mutated): everything(bytes_, kind))  # type: ignore[misc]
        swallow(lambda bytes_=bytes(mutated): message_of(BytesSource(bytes_), "a", kind))  # type: ignore[misc]
    assert 0 < fine < 1500  # some of the damage is harmless

"""Safetensors and GGUF files: headers, shards, folders; the format's own library takes the same files."""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest
import safetensors
from safetensors.numpy import save, save_file
from tests.support.stores import open_stores, upload

from protoslice import open_model
from protoslice.concurrency import finish
from protoslice.detection.magic import GGUF, SAFETENSORS
from protoslice.errors import CorruptModel, LimitExceeded, ProtosliceError, Unsupported
from protoslice.formats.registry import tensors_of
from protoslice.formats.report import report_job
from protoslice.library.documents import message_of
from protoslice.sources.files import BytesSource
from protoslice.storage import MemoryStorage
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import MissingFile, Model, Unreadable
from protoslice.tensors.reading import read

ROOTS = {SAFETENSORS: "a.safetensors", GGUF: "a.gguf"}


class Bounded(BytesSource):
    """Bytes that no read exceeds; they record where a read ends."""

    def read(self, offset: int, length: int, /) -> bytes:
        assert offset >= 0
        assert length >= 0
        assert offset + length <= self.size
        return super().read(offset, length)


def tensors(data: bytes, kind: str = SAFETENSORS, **more: bytes) -> Tensors:
    files = {ROOTS[kind]: data, **{name.replace("__", "."): each for name, each in more.items()}}
    return tensors_of(Model(ROOTS[kind], kind, {name: Bounded(each) for name, each in files.items()}, None))


def headed(header: object, data: int = 0) -> bytes:
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
        (headed(b"[]"), "does not begin with {"),
        (headed(b"{"), "name of a tensor"),
        (headed(b'{"a"'), "name of a tensor"),
        (headed(b"{} x"), "end of the header"),
        (headed(b'{"\xff":1}'), "not UTF-8"),
        (headed(b'{"\\ud800":' + json.dumps(entry(0, 1)).encode() + b"}", 1), "a name is not valid text"),
        (headed(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"), "expected an object"),
        (headed(b'{"a":{"dtype":' + b"[" * 4000 + b"}}"), "expected an object"),
        (headed({"a": 1}), "expected an object"),
        (headed({"a": {"dtype": "U8", "shape": []}}), "expected an object"),
        (headed({"a": entry(0, 1, dtype=7)}, 1), "expected a dtype"),
        (headed({"a": entry(0, 1, [True])}, 1), "expected a dtype"),
        (headed({"a": entry(0, 1, [-1])}, 1), "expected a dtype"),
        (headed({"a": entry(0, 1, [1.0])}, 1), "expected a dtype"),
        (headed({"a": entry(0, 1, [1 << 40, 1 << 40])}, 1), "too many elements"),
        (headed({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}}), "are invalid"),
        (headed({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1 << 80]}}), "expected a dtype"),
        (headed({"a": entry(0, 2), "b": entry(1, 3)}, 3), "'a' and 'b' overlap"),
        (headed({"a": entry(0, 1), "b": entry(2, 3)}, 3), "a gap of 1 bytes before the tensor 'b'"),
        (headed({"a": entry(1, 2)}, 2), "a gap of 1 bytes"),
        (headed({"a": entry(0, 1)}, 9), "8 bytes follow the last tensor"),
        (headed(b'{"a":%b,"a":[]}' % json.dumps(entry(0, 1)).encode(), 1), "expected an object"),
        (headed({"a": entry(0, 1) | {"x": "y" * 20_000}, "b": 1}, 1), "expected an object"),
        (headed(b'{"a":{"x":"%b","y":z}}' % (b"y" * 20_000)), "expected an object"),
        (headed({"__metadata__": {"a": 1}}), "a string for each key"),
        (headed({"__metadata__": []}), "an object of strings"),
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
    (found,) = [each for each in (tensors(headed(b"{" + text.encode(), 6))[0],)]
    assert (found.name, found.shape, found.address) == ("a\n", (2, 3), "tensor:a\n")
    assert len(tensors(headed(b"{}"))) == len(tensors(headed(b"{ \n}   "))) == 0


def test_a_cut_file_has_the_tensors_that_are_whole() -> None:
    found = tensors(headed({"a": entry(0, 4), "b": entry(4, 8)}, 6))
    assert not isinstance(found[0].data, Unreadable)
    assert isinstance(found[1].data, Unreadable)
    with pytest.raises(CorruptModel, match="ends at byte"):
        read(found[1])


def test_an_unknown_type_is_an_error_of_its_tensor() -> None:
    header = {"a": entry(0, 4, [1], "F33"), "b": entry(4, 8), "c": entry(8, 9, [2]), "d": entry(9, 11, [3], "F4")}
    found = tensors(headed(header, 11))
    for number, words in (
        (0, "the unknown type 'F33'"),
        (2, "takes 2 bytes, but there are 1"),
        (3, "fill whole bytes"),
    ):
        with pytest.raises(CorruptModel, match=words):
            read(found[number])
    assert read(found[1]).bytes.size == 4


def test_an_index_names_what_is_missing() -> None:
    name = "model.safetensors.index.json"
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}}
    files = {name: BytesSource(json.dumps(index).encode())}
    files["one.safetensors"] = BytesSource(headed({"a": entry(0, 1)}, 1))
    found = tensors_of(Model(name, SAFETENSORS, files, None))
    names = [found[number].name for number in range(3)]
    assert sorted(names) == ["a", "b", "c"]
    with pytest.raises(MissingFile, match=r"'two\.safetensors', which is missing or lacks it"):
        read(found[names.index("b")])


@pytest.mark.parametrize("location", ["../x.safetensors", "/etc/passwd", "a/../../b", "\\b"])
def test_an_index_leads_nowhere_else(location: str) -> None:
    name = "m/model.safetensors.index.json"
    files = {name: BytesSource(json.dumps({"weight_map": {"a": location}}).encode())}
    with pytest.raises(CorruptModel, match="outside of the model"):
        tensors_of(Model(name, SAFETENSORS, files, None))


def test_a_tensor_is_in_one_file_only() -> None:
    files = {f"m-0000{number}-of-00002.safetensors": headed({"a": entry(0, 1)}, 1) for number in (1, 2)}
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
        (gguf([key(b"a", 99, b"")]), CorruptModel, "the type 99"),
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


# Folders of safetensors files: the files of the model, and files that are other variants of it.

NAME = "diffusion_pytorch_model"
BOTH = (f"{NAME}-00001-of-00002", f"{NAME}-00002-of-00002")
NEW = (f"{NAME}.fp16-00001-of-00002", f"{NAME}.fp16-00002-of-00002")
OLD = tuple(f"{each}.fp16" for each in BOTH)
OTHER = tuple(f"{NAME}.bf16-0000{number}-of-00003" for number in (1, 2, 3))
ALL = {
    "a component in one file": ([NAME], [NAME]),
    "shards": (BOTH, BOTH),
    "a variant": ([f"{NAME}.fp16"], [f"{NAME}.fp16"]),
    "shards of a variant": (NEW, NEW),
    "shards of a variant, with the older names": (OLD, OLD),
    "two variants": ([*OTHER, *NEW], OTHER),
    "a variant and the model": ([f"{NAME}.fp16", NAME], [NAME]),
    "shards of a variant and the model": ([*NEW, NAME], [NAME]),
    "shards of a variant and of the model": ([*NEW, *OLD, *BOTH], BOTH),
    "shards and a whole file": ([*BOTH, NAME], [NAME]),
    "shards left from a larger count": ([f"{NAME}-00003-of-00009", *BOTH], BOTH),
    "shards left from a smaller count": ([f"{NAME}.bf16-00002-of-00002", *OTHER], OTHER),
    "files with several names": (["one", "two", "one.fp16"], ["one", "two"]),
}


def written(folder: Path, names: Iterable[str]) -> None:
    """Write one file for each name with a tensor of that name; files of a variant are larger."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        save_file({name: np.zeros(9 if "." in name else 1)}, folder / f"{name}.safetensors")


@pytest.mark.parametrize("case", ALL)
def test_a_component_is_one_variant_with_all_its_shards(case: str, tmp_path: Path) -> None:
    names, expected = ALL[case]
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "X", "unet": ["diffusers", "U"]}))
    for order in (names, [*names][::-1]):
        written(tmp_path / "unet", order)
    with open_model(tmp_path) as model:
        assert sorted(each.name for each in model.matching()) == sorted(f"unet/{name}" for name in expected)
        assert finish(report_job(model.model)).missing == ()


def test_a_shard_that_a_component_lacks_is_missing(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "X", "unet": ["diffusers", "U"]}))
    written(tmp_path / "unet", NEW[:1])
    with open_model(tmp_path) as model:
        assert finish(report_job(model.model)).missing == (f"unet/{NEW[1]}.safetensors",)
        with pytest.raises(MissingFile, match=r"fp16-00002-of-00002\.safetensors"):
            len(model.tensors)


FOLDERS_ROOTS = {
    "a variant": (["model.fp16", "model"], "model"),
    "shards of a variant": (["model.fp16-00001-of-00002", "model.fp16-00002-of-00002", "model"], "model"),
    "variants of shards": (
        [f"model{each}-0000{number}-of-00002" for each in (".fp16", "") for number in (1, 2)],
        "model-00001-of-00002",
    ),
    "variants of shards, with the older names": (
        [f"model-0000{number}-of-00002{each}" for each in (".fp16", "") for number in (1, 2)],
        "model-00001-of-00002",
    ),
    "shards of a variant alone": (
        ["model-00001-of-00002.fp16", "model-00002-of-00002.fp16"],
        "model-00001-of-00002.fp16",
    ),
    "a version is no variant": (["small", "model-v1.5"], "model-v1.5"),
    "a variant of a file elsewhere": (["model.fp16", "more/model"], "model.fp16"),
}


@pytest.mark.parametrize("case", FOLDERS_ROOTS)
def test_the_file_without_a_variant_is_the_root(case: str, tmp_path: Path) -> None:
    names, expected = FOLDERS_ROOTS[case]
    for name in names:
        written((tmp_path / name).parent, [])
        save_file({name: np.zeros(9 if "." in name else 1)}, tmp_path / f"{name}.safetensors")
    with open_model(tmp_path) as model:
        assert model.model.root == f"{expected}.safetensors"
        listed = sorted(each.name for each in model.matching())
    shards = [name for name in names if name.replace("2-of", "1-of") == expected]
    assert listed == sorted(shards or [expected])


@pytest.mark.parametrize("case", FOLDERS_ROOTS)
def test_a_service_chooses_the_same_root(case: str) -> None:
    names, expected = FOLDERS_ROOTS[case]

    async def work() -> str | None:
        stores = await open_stores(MemoryStorage())
        files = {f"{name}.safetensors": save({name: np.zeros(9 if "." in name else 1)}) for name in names}
        return (await upload(stores, files)).store.root

    assert asyncio.run(work()) == f"{expected}.safetensors"


# Safetensors headers against the format's library: both accept the same files, and read the same from them.

Found = dict[str, tuple[str, tuple[int, ...], bytes]]
"""The type, the shape and the bytes of each tensor."""
BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9.]+(?:[eE][-+]?[0-9]+)?|\w+|\s+|.', re.DOTALL)
TOKENS: Final = [
    *'{}[],:"\\ \t\n\r\f\0\xa00159-+.', "-0", "00", "02", "1.0", "1e0", "1E400", "-1", "0x1", "18446744073709551616",
    "9223372036854775807", "99999999999999999999", "true", "null", "NaN", "Infinity", '""', '"a"', '"b"', '"dtype"',
    '"shape"', '"data_offsets"', '"__metadata__"', '"F32"', '"f32"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u00e9"',
    '"\\x"', "{}", "[]", "[[]]", '{"a":1,"a":[{}]}', ',"x":{"y":["}"]}', ',"x":"' + "long" * 3000 + '"',
    ',"x":' + "[" * 125 + "]" * 125, ',"x":' + "[" * 126 + "]" * 126, '"__metadata__":null,', "\ufeff", "\u2028",
]  # fmt: skip


def by_the_library(data: bytes) -> Found | None:
    """Return the tensors that the library reads; None if it refuses the file."""
    try:
        return {name: (each["dtype"], tuple(each["shape"]), bytes(each["data"])) for name, each in _library(data)}
    except (safetensors.SafetensorError, UnicodeDecodeError):
        return None


def _library(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    return found


def by_us(path: Path) -> Found | None:
    """Return the tensors that Protoslice reads from `path`; None if it refuses the file or a tensor."""
    found: Found = {}
    try:
        with open_model(path) as model:
            for tensor in model.matching():
                elements = model.read(tensor, form="packed").read()
                assert tensor.dtype is not None
                assert tensor.shape is not None
                found[tensor.name] = (tensor.dtype.safetensors or "", tensor.shape, elements)
    except ProtosliceError:
        return None
    return found


def a_file(random: Random) -> tuple[str, bytes]:
    """Return a header and the bytes after it; sometimes the last element has one byte too few or too many."""
    header: dict[str, Any] = {}
    end, names = 0, random.sample(["a", "b", "ä", "x/y", 'q"', "\\", "\n", "😀", "", "dtype"], random.randrange(1, 5))
    for name in names:
        dtype = random.choice([*BITS, "F4", "F6_E2M3"])
        shape = [random.choice((0, 1, 1, 2, 3, 4)) for _ in range(random.randrange(4))]
        if 0 in shape and random.random() < 0.3:
            shape = [length and 1 << random.choice((33, 62)) for length in shape]
        bits = BITS[dtype]
        for length in shape:
            bits *= length
        size = random.choice((bits // 8, -(-bits // 8), -(-bits // 8)))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    if random.random() < 0.4:
        header["__metadata__"] = random.choice(({}, {"format": "pt"}, {"": "", "ä": '"'}))
    if random.random() < 0.3:
        header = dict(random.sample(list(header.items()), len(header)))
    separators = random.choice(((",", ":"), (", ", ": "), (" ,\n", "\t:")))
    text = json.dumps(header, separators=separators, ensure_ascii=random.random() < 0.5)
    return text + " " * random.randrange(3), random.randbytes(end)


def mutated(text: str, random: Random) -> str:
    """Return the header with one or two tokens replaced, removed, repeated, swapped or added."""
    tokens = TOKEN.findall(text)
    for _ in range(random.choice((1, 1, 1, 2))):
        at, other = random.randrange(len(tokens)), random.randrange(len(tokens))
        match random.randrange(8):
            case 0:
                tokens[at] = random.choice(TOKENS)
            case 1:
                tokens[at] = ""
            case 2:
                tokens.insert(at, random.choice(TOKENS))
            case 3:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 4:  # a tensor or a member twice
                tokens[at:at] = [*tokens[min(at, other) : max(at, other)], random.choice((",", ""))]
            case 5 | 6:  # a number in another spelling
                numbers = [number for number, token in enumerate(tokens) if token.isdigit()] or [at]
                before, after = random.choice([("0", ""), ("-", ""), ("", ".0"), ("", "e0"), (",", ""), ("", ",")])
                place = random.choice(numbers)
                tokens[place] = before + tokens[place] + after
            case _:
                letters = list(tokens[at])
                letters[random.randrange(len(letters) or 1) :] = random.choice(TOKENS)
                tokens[at] = "".join(letters)
    return "".join(tokens)


def test_3000_mutated_headers_are_taken_as_by_the_library(tmp_path: Path) -> None:
    random, path, taken, differing = Random(9), tmp_path / "m.safetensors", 0, []
    for number in range(3000):
        text, elements = a_file(random)
        for _ in range(number % 3):  # a third of them unchanged
            text = mutated(text, random)
        header = text.encode()
        size = len(header) + random.choice((0,) * 20 + (-1, 1))
        data = struct.pack("<Q", size) + header + elements
        path.write_bytes(data)
        expected = by_the_library(data)
        taken += expected is not None
        if by_us(path) != expected:
            differing.append((text[:300], expected, by_us(path)))
    assert not differing, f"{len(differing)}: {differing[:8]}"
    assert 500 < taken < 2500


ENTRY: Final = '"dtype":"U8","shape":[0],"data_offsets":[0,0]'
SPELLED: Final = [
    "{}", " {}", "\t\n\r{ } ", "\ufeff{}", "{}\0", "{},", "", "[]", '{"__metadata__":null}', '{"__metadata__": null }',
    '{"__metadata__":{"a":"b","a":"c"}}', '{"__metadata__":{},"__metadata__":{}}', '{"__metadata__":{"a":null}}',
    '{"__metadata__":{"a":"\\ud800"}}', '{"__metadata__":{"\\udc00\\ud800":""}}', '{"\\ud83d\\ude00":{%s}}',
    '{"\\ud83d":{%s}}', '{"a":{%s},"a":{%s}}', '{"a":{"dtype":"U8","shape":[9],"data_offsets":[7,9]},"a":{%s}}',
    '{"a":{%s},"a":{"dtype":"U8","shape":[9],"data_offsets":[7,9]}}', '{"a":{%s,"dtype":"U8"}}', '{"a":null}',
    '{"a":{}}',
    '{"a":{%s,"x":[1e308,1e-999,-0,123456789012345678901234567890]}}', '{"a":{%s,"x":1e309}}', '{"a":{%s,"x":[NaN]}}',
    '{"a":{%s,"x":-Infinity}}', '{"a":{%s,"x":1' + "0" * 400 + "}}", '{"a":{%s,"x":{"y":1,"y":{}}}}',
    '{"a":{%s,"\\ud800":1}}', '{"a":{%s,"x":"' + "long" * 9999 + '"}}', '{"a":{"dt\\u0079pe":"U8","shape":[0],'
    '"data_offsets":[0,0]}}', '{"protoslice.padding.a":{%s}}', '{"protoslice.padding.a":{"dtype":"U","shape":[0],'
    '"data_offsets":[0,0]}}',
]  # fmt: skip


@pytest.mark.parametrize("spelled", SPELLED)
def test_headers_are_taken_as_by_the_library(spelled: str, tmp_path: Path) -> None:
    header = spelled.replace("%s", ENTRY).encode()
    data = struct.pack("<Q", len(header)) + header
    (tmp_path / "m.safetensors").write_bytes(data)
    taken, expected = by_us(tmp_path / "m.safetensors"), by_the_library(data)
    assert (taken is None) == (expected is None)
    assert (taken or {}).items() <= (expected or {}).items()


def header_of(**members: object) -> bytes:
    return json.dumps({"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} | members}).encode()


REFUSED: Final[dict[str, tuple[Callable[[], bytes], type[ProtosliceError], str]]] = {
    "more than 64 MiB": (lambda: b"{}" + b" " * (64 << 20), LimitExceeded, "at most 67108864 bytes"),
    "a tensor of more than 1 MiB": (lambda: header_of(x="x" * (1 << 20)), LimitExceeded, "more than 1048576"),
    "more than 65536 keys": (
        lambda: json.dumps({"__metadata__": dict.fromkeys(map(str, range(65537)), "")}).encode(),
        LimitExceeded,
        "more than 65536 keys",
    ),
    "a dimension of 2^63": (lambda: header_of(shape=[1 << 63, 0]), CorruptModel, "non-negative integers"),
    "a type in an object": (lambda: header_of(dtype={"U8": None}), CorruptModel, "expected a dtype"),
    "a tensor in an array": (lambda: b'{"a":["U8",[0],[0,0]]}', CorruptModel, "expected an object"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_these_headers_alone_are_refused_though_the_library_takes_them(what: str, tmp_path: Path) -> None:
    make, error, words = REFUSED[what]
    header, path = make(), tmp_path / "m.safetensors"
    data = struct.pack("<Q", len(header)) + header
    assert by_the_library(data) is not None
    path.write_bytes(data)
    with open_model(path) as model, pytest.raises(error, match=words):
        len(model)

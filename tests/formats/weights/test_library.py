"""Safetensors headers against the format's own library: both take the same files, and read the same from them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import safetensors

from protoslice import open_model
from protoslice.errors import CorruptModel, LimitExceeded, ProtosliceError

Found = dict[str, tuple[str, tuple[int, ...], bytes]]
"""Type, shape and bytes of each tensor."""
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
    """What the library reads; None if it refuses the file."""
    try:
        return {name: (each["dtype"], tuple(each["shape"]), bytes(each["data"])) for name, each in _library(data)}
    except (safetensors.SafetensorError, UnicodeDecodeError):
        return None


def _library(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    return found


def by_us(path: Path) -> Found | None:
    """What `path` has by Protoslice; None if it refuses the file or a tensor of it."""
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
    """A header and the bytes behind it, which now and then are one too few or too many for the last element."""
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
    """The header with one or two tokens replaced, removed, repeated, swapped or added."""
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
            case 5 | 6:  # a number, spelled in another way
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
        for _ in range(number % 3):  # a third of them as they are
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

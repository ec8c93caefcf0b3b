"""Models of many gigabytes whose numbers are holes in a file, which take little of the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tests.support.protos.writer import varint

FLOAT = 1
_LARGE = 1 << 20
PARTS = ("attention.query", "attention.key", "ffn.in", "ffn.out", "norm.scale")


def vast_onnx(
    path: Path, layers: int, large: tuple[int, int], small: int, changed: int | None = None, *, holes: bool = True
) -> int:
    """Writes an ONNX model of `layers` times a large matrix and `small` vectors; returns the tensors.

    Vectors have 64 numbers. All numbers are zeros, in holes; the matrix of the layer `changed` has a few that are none.
    Without `holes` matrices are of random bytes.
    """
    shapes = [
        (f"encoder.layer.{layer}.{name}", shape) for layer in range(layers) for name, shape in _layer(large, small)
    ]
    heads = [_tensor(name, shape) for name, shape in shapes]
    size = sum(len(_field(5, len(head) + count)) + len(head) + count for head, count in heads)
    with path.open("wb") as file:
        file.write(b"\x08\x08" + _field(7, size))
        for number, (head, count) in enumerate(heads):
            file.write(_field(5, len(head) + count) + head)
            start = file.tell()
            if changed is not None and number == changed * (small + 1):
                file.write(os.urandom(64))
            while not holes and count > _LARGE and file.tell() < start + count:
                file.write(os.urandom(min(_LARGE, start + count - file.tell())))
            file.seek(start + count)
        file.truncate()
    return len(heads)


def _layer(large: tuple[int, int], small: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "weight", large
    for number in range(small):
        yield f"{PARTS[number % len(PARTS)]}.{number}", (64,)


def _tensor(name: str, shape: tuple[int, ...]) -> tuple[bytes, int]:
    """The message of a tensor up to its numbers, and how many bytes of them follow."""
    count = 4
    for each in shape:
        count *= each
    head = b"".join(b"\x08" + varint(each) for each in shape) + b"\x10" + varint(FLOAT)
    head += b"\x42" + varint(len(name)) + name.encode() + b"\x4a" + varint(count)
    return head, count


def _field(number: int, length: int) -> bytes:
    """The tag and the length of a field of bytes."""
    return varint(number << 3 | 2) + varint(length)

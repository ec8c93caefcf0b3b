"""`diff` of a store and a file in which much is shifted: what lies here is found here."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.proxy import FaultyProxy, faulty_proxy

from protoslice import schema
from protoslice.cli.comparing.shifts import FETCHED_BLOCK, Local, places_in
from protoslice.client import Client
from protoslice.comparing.equality import PieceList
from protoslice.facts import Piece
from protoslice.sources.files import BytesSource

STEP = 10 * FETCHED_BLOCK
CONTENT = random.Random(3).randbytes(STEP * 6 + 777)
Edit = tuple[int, int, bytes]
EDITS = st.lists(
    st.tuples(st.integers(0, len(CONTENT)), st.integers(0, 3 * FETCHED_BLOCK), st.binary(max_size=300)), max_size=5
)


def _edited(edits: list[Edit]) -> bytes:
    data = bytearray(CONTENT)
    for at, gone, new in sorted(edits, reverse=True):
        data[at : at + gone] = new
    return bytes(data)


def _pieces(data: bytes) -> list[Piece]:
    bounds = [*range(0, len(data), STEP), len(data)]
    return [
        Piece("m", start, end - start, hashlib.sha256(data[start:end]).hexdigest()) for start, end in pairwise(bounds)
    ]


class _Fetched:
    """Blocks of what lies elsewhere, counted."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.blocks: set[tuple[int, int]] = set()

    def __call__(self, piece: Piece, number: int) -> bytes:
        self.blocks.add((piece.offset, number))
        start = piece.offset + number * FETCHED_BLOCK
        return self._data[start : min(start + FETCHED_BLOCK, piece.end)]


@given(EDITS, EDITS)
@settings(max_examples=60)
def test_whatever_is_found_is_the_piece(here: list[Edit], there: list[Edit]) -> None:
    near, far = _edited(here), _edited(there)
    local = Local(BytesSource(near), PieceList(_pieces(near)))
    for piece, (source, start) in places_in(local, _pieces(far), _Fetched(far)):
        wanted = far[piece.offset : piece.end]
        assert source.read(start, piece.size) == wanted
        for begin, end in (
            (0, 1),
            (FETCHED_BLOCK - 5, 2 * FETCHED_BLOCK + 9),
            (piece.size // 3, piece.size),
            (piece.size, piece.size),
        ):
            begin, end = min(begin, piece.size), min(end, piece.size)
            assert source.read(start + begin, end - begin) == wanted[begin:end]


@pytest.mark.parametrize(
    ("edits", "blocks"),
    [
        ([(0, 0, b"new")], 10),
        ([(STEP * 3 + 99, 0, b"new" * 9)], 10),
        ([(STEP * 3 + 99, 5000, b"")], 10),
        (
            [
                (STEP + 5 * FETCHED_BLOCK, 0, b"one"),
                (STEP * 3 + 7 * FETCHED_BLOCK, 700, b""),
                (STEP * 5, 9, b"another"),
            ],
            30,
        ),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_everything_is_found_for_a_few_blocks(edits: list[Edit], blocks: int, turned: bool) -> None:
    near, far = (CONTENT, _edited(edits))[:: -1 if turned else 1]
    fetched, pieces = _Fetched(far), _pieces(far)
    found = {piece for piece, _ in places_in(Local(BytesSource(near), PieceList(_pieces(near))), pieces, fetched)}
    assert found == set(pieces)
    assert len(fetched.blocks) <= blocks, "of 60"


def test_what_is_not_here_is_soon_given_up() -> None:
    far = random.Random(9).randbytes(STEP * 12)
    fetched = _Fetched(far)
    assert list(places_in(Local(BytesSource(CONTENT), PieceList(_pieces(CONTENT))), _pieces(far), fetched)) == []
    assert len(fetched.blocks) <= 12


@pytest.fixture
def proxy(service: str) -> Iterator[FaultyProxy]:
    """Counts what goes over the wire."""
    with faulty_proxy(service) as proxy:
        yield proxy


def _many(path: Path, change: Callable[[Any], object]) -> Path:
    """A network of 2500 small tensors, after a change to their list."""
    message: Any = schema.bundled().message_class("onnx.ModelProto")()
    content = random.Random(7)
    for number in range(2500):
        tensor = message.graph.initializer.add(name=f"w{number}", data_type=1, dims=[1000])
        tensor.raw_data = content.randbytes(4000)
    change(message.graph.initializer)
    path.write_bytes(message.SerializeToString())
    return path


def test_small_tensors_behind_an_insertion_are_not_fetched(call: Any, proxy: FaultyProxy, tmp_path: Path) -> None:
    def change(tensors: Any) -> None:
        made = type(tensors[0])(name="new", data_type=1, dims=[3], raw_data=bytes(12))
        tensors.insert(100, made)
        tensors[1700].raw_data = tensors[1700].raw_data[:-12]
        tensors[1700].dims[0] -= 3

    one, other = _many(tmp_path / "one.onnx", lambda _: None), _many(tmp_path / "two.onnx", change)
    with Client(proxy.url) as client:
        client.push(one, tags=["many:1"])
        client.push(other, tags=["many:2"])
    changes = {("added", "new"), ("removed", "new"), ("changed", "w1699")}
    for way in ((f"{proxy.url}/v1/stores/many:1", other), (one, f"{proxy.url}/v1/stores/many:2")):
        before = proxy.sent_down
        told = json.loads(call("diff", *way, "--json", code=8).stdout)["differences"]
        found = {(each["change"], each["path"]) for each in told if each["what"] == "tensor"}
        assert len(found) == 2
        assert found < changes
        assert proxy.sent_down - before < 1 << 20, "of 10 MB"

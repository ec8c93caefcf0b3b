"""The scanner and its index: pieces of any size give the same index; indexes of other versions are refused.

A proto beyond 4 GiB is made on the fly, indexed as a stream and served in part, in constant memory.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos import ROOT, Case, cases

import protoslice
from protoslice import _core
from protoslice.errors import CorruptModel, IntegrityError, InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.schema import bundled, from_descriptor_set
from protoslice.sources.files import BytesSource

_MOST_STEPS = 20_000


def scanner(case: Case) -> _core.Scanner:
    return _core.Scanner(from_descriptor_set(case.schema).flat(ROOT), ROOT, floor=case.floor)


def fed(case: Case, pieces: list[bytes]) -> bytes:
    scan = scanner(case)
    at = 0
    for piece in pieces:
        assert scan.offset == at
        scan.feed(piece)
        at += len(piece)
    return scan.finish(at)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def cut_anywhere(data: bytes, rng: Random) -> list[bytes]:
    places = sorted(rng.choices(range(len(data) + 1), k=rng.randint(0, 50)))
    return [data[a:b] for a, b in pairwise([0, *places, len(data)])]


@given(cases())
def test_pieces_of_any_size_give_the_same_index(case: Case) -> None:
    whole = fed(case, [case.data])
    for size in (1, 2, 3, 7, 64, 1000):
        if len(case.data) <= size * _MOST_STEPS:
            assert fed(case, cut(case.data, size)) == whole, size
    for _ in range(5):
        assert fed(case, cut_anywhere(case.data, case.rng)) == whole


@given(cases(), st.sampled_from([1, 2, 9, 50, 4096]))
def test_random_access_gives_the_same_index_and_reads_no_more_than_it_says(case: Case, step: int) -> None:
    scan = scanner(case)
    for _ in range(_MOST_STEPS):
        at = scan.jump()
        assert at == scan.wants
        if at >= len(case.data):
            assert scan.finish(len(case.data)) == fed(case, [case.data])
            return
        scan.feed(case.data[at : at + step])


@given(cases())
def test_a_source_gives_the_same_index(case: Case) -> None:
    flat = from_descriptor_set(case.schema).flat(ROOT)
    assert _core.index_source([BytesSource(case.data)], None, flat, ROOT, floor=case.floor) == fed(case, [case.data])


@given(cases())
def test_the_index_verifies_and_says_what_it_is_of(case: Case) -> None:
    index = _core.Index(fed(case, [case.data]))
    index.verify()
    assert (index.size, index.floor, index.root_type) == (len(case.data), case.floor, ROOT)


@given(cases(budget=20))
def test_every_truncation_is_an_error_with_its_place_or_a_smaller_proto(case: Case) -> None:
    case.floor = 1
    for end in range(min(len(case.data), 400)):
        error = refusal(case, case.data[:end])
        assert (error is None) == taken_by_runtime(case, case.data[:end])
        assert error is None or error.path


@given(cases(budget=20), st.integers(0, 2**32))
def test_bytes_the_runtime_takes_the_scanner_takes(case: Case, seed: int) -> None:
    """Random damage: the runtime refuses all bytes that the scanner refuses; no other error is raised.

    The exception is field number 0, which the runtime does not look for in groups that it does not know.
    """
    rng = Random(seed)
    case.floor = 1
    for _ in range(20):
        data = damaged(case.data, rng)
        error = refusal(case, data)
        agreed = error is None or "0 is no field number" in str(error) or not taken_by_runtime(case, data)
        assert agreed, f"{data.hex()}: {error}"


@pytest.mark.parametrize(
    ("data", "here", "there"),
    [
        pytest.param(b"\x08" + b"\xff" * 9 + b"\x7f", True, True, id="a value of 70 bits loses six"),
        pytest.param(b"\x08" + b"\x80" * 10 + b"\x00", False, False, id="a value of eleven bytes"),
        pytest.param(b"\x0a\x80\x80\x80\x80\x80\x00", True, False, id="a length of six bytes: ours have 64 bits"),
        pytest.param(b"\x0a" + b"\x80" * 9 + b"\x02", False, False, id="a length of longer than 64 bits"),
        pytest.param(b"\x88\x80\x80\x80\x80\x00\x01", True, False, id="a tag of six bytes"),
        pytest.param(b"\x13\x00\x01\x14", False, True, id="number 0 in an unknown group"),
        pytest.param(b"\x13\x80\x80\x80\x80\x20\x01\x14", False, False, id="number 2^30 in an unknown group"),
    ],
)
def test_where_judges_of_protobuf_differ_we_know_our_side(data: bytes, here: bool, there: bool) -> None:
    """Runtime and scanner were compared on a hundred thousand damaged protos, which showed no other kind."""
    try:
        _core.index_source([BytesSource(data)], floor=1)
        taken = True
    except CorruptModel:
        taken = False
    try:
        Empty.FromString(data)
        taken_there = True
    except DecodeError:
        taken_there = False
    assert (taken, taken_there) == (here, there)


def refusal(case: Case, data: bytes) -> CorruptModel | None:
    """Return the error that gives the position of the damage in `data`; None if there is no damage."""
    try:
        fed(case, [data])
    except CorruptModel as error:
        refused = error
    else:
        return None
    assert refused.offset is not None
    assert 0 <= refused.offset <= len(data)
    return refused


def damaged(data: bytes, rng: Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(out))
        match rng.randrange(4):
            case 0:
                del out[at : at + rng.randint(1, 4)]
            case 1:
                out[at:at] = rng.randbytes(rng.randint(1, 3))
            case 2 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case _:
                out[at : at + 1] = bytes([rng.choice([0, 0x0B, 0x0C, 0x7F, 0x80, 0xFF])])
    return bytes(out)


def taken_by_runtime(case: Case, data: bytes) -> bool:
    try:
        case.root.FromString(data)
    except Exception:  # the runtime's error class does not matter here
        return False
    return True


@pytest.mark.parametrize(
    ("data", "offset", "word"),
    [
        (b"\x00", 0, "invalid field number"),
        (b"\x08\x01\x0f", 2, "wire type 7"),
        (b"\x0e\x01", 0, "wire type 6"),
        (b"\x0a\x05ab", 4, "cut off"),
        (b"\x08\x01\x0b\x08\x01", 2, "cut off"),
        (b"\x0b\x14", 1, "end tag"),
        (b"\x0c", 0, "end tag"),
        (b"\x08" + b"\xff" * 10 + b"\x01", 0, "longer than 64 bits"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0, "its message ends"),
        (b"\x80\x80\x80\x80\x80\x01\x00", 0, "invalid field number"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(data: bytes, offset: int, word: str) -> None:
    with pytest.raises(CorruptModel, match=word) as caught:
        _core.index_source([BytesSource(data)], floor=1)
    assert caught.value.offset == offset
    assert caught.value.path == ("1" if b"\x0b" in data else "the root message")


def test_after_an_error_the_scan_does_not_go_on() -> None:
    scan = _core.Scanner()
    with pytest.raises(CorruptModel):
        scan.feed(b"\x00")
    with pytest.raises(Unsupported, match="this scan has failed"):
        scan.feed(b"\x08\x01")


def test_a_finished_scan_says_so() -> None:
    scan = _core.Scanner()
    scan.finish(0)
    with pytest.raises(Unsupported):
        scan.feed(b"\x08")


# A forged index: its checksums are right, but its content is not.

GRAPH = "tensorflow.GraphDef"
LENGTHS = 32
"""The header's offset of the sections' lengths."""
HEADER = 88
PAGE = 65536
NODE = 80


def graph() -> bytes:
    message: Any = bundled().message_class(GRAPH)()
    message.node.add(name="n").attr["value"].tensor.tensor_content = bytes(50_000)
    return bytes(message.SerializeToString())


def crc(data: bytes) -> bytes:
    sums = _core.BlockSums()
    sums.update(data)
    return sums.finish()


def with_parents(index: bytes, parents: list[int]) -> bytes:
    """Return `index` with the nodes (except the root) in `parents`, and with matching checksums."""
    types, nodes, *_ = lengths = struct.unpack_from("<7Q", index, LENGTHS)
    body = HEADER + 4 * -(-sum(lengths) // PAGE) + 4
    assert nodes == NODE * (len(parents) + 1)
    made = bytearray(index)
    for number, parent in enumerate(parents, 1):
        struct.pack_into("<I", made, body + types + NODE * number, parent)
    made[HEADER : body - 4] = crc(bytes(made[body:]))
    made[body - 4 : body] = crc(bytes(made[: body - 4]))
    return bytes(made)


def test_the_largest_fields_of_an_index_are_told_with_their_paths() -> None:
    data = graph()
    index = protoslice.open(data, GRAPH).index_bytes
    again = with_parents(index, [0, 1, 2, 3])
    assert again == index, "as it was"
    assert protoslice.open(data, GRAPH, index=again).largest(1)[0].path.endswith("tensor_content")


@pytest.mark.parametrize("parents", [[1, 2, 3, 4], [4, 1, 2, 3], [2, 1, 2, 3]])
def test_a_message_that_stands_in_itself_is_an_error(parents: list[int]) -> None:
    data = graph()
    index = with_parents(protoslice.open(data, GRAPH).index_bytes, parents)
    with pytest.raises(LimitExceeded, match="deep"):
        protoslice.open(data, GRAPH, index=index).largest(1)


# The index of a stream through the Python module: equal by pieces and by source, with errors of public classes.

STREAM = b"\x03abc\x00\x02de"


def test_pieces_and_a_source_give_the_same_index() -> None:
    scanner = _core.RecordScanner("delimited")
    for at in range(len(STREAM)):
        scanner.feed(STREAM[at : at + 1])
    saved = scanner.finish(len(STREAM))
    assert saved == _core.index_records(_sources(STREAM), "delimited")
    records = _core.Records(saved)
    assert (records.count, records.end, records.size, records.fault) == (3, 8, 8, None)
    assert [records.place(n) for n in range(3)] == [(0, 1, 4, 4), (4, 5, 5, 5), (5, 6, 8, 8)]
    assert records.read(_sources(STREAM), 0, 3, 100) == [b"abc", b"", b"de"]


def test_long_records_are_passed_over() -> None:
    scanner = _core.RecordScanner("u64le")
    scanner.feed((1 << 40).to_bytes(8, "little"))
    assert scanner.jump() == (1 << 40) + 8
    scanner.feed(bytes(8))
    records = _core.Records(scanner.finish((1 << 40) + 16))
    assert (records.count, records.place(1)) == (2, ((1 << 40) + 8, *[(1 << 40) + 16] * 3))


def test_ranges_come_as_one_rope_in_the_framing_that_is_asked_for() -> None:
    records = _core.Records(_core.index_records(_sources(STREAM), "delimited"))
    rope = records.rope(_sources(STREAM), [(2, 3), (0, 2)], "u32be")
    sources = _sources(STREAM)
    assert sources.read(rope, 0, rope.size) == b"\0\0\0\x02de\0\0\0\x03abc\0\0\0\0"
    as_it_lies = records.rope(sources, [(0, 3)], "delimited")
    assert as_it_lies.pieces() == [(0, 0, len(STREAM))]


def test_a_stream_that_is_cut_says_where_and_keeps_the_rest() -> None:
    records = _core.Records(_core.index_records(_sources(STREAM[:-1]), "delimited"))
    assert records.count == 2
    assert records.fault == (5, "the stream ends inside a record of 2 bytes")


def test_each_error_is_a_class_of_its_own() -> None:
    saved = _core.index_records(_sources(STREAM), "delimited")
    with pytest.raises(InvalidInput, match="tfrecord, delimited"):
        _core.RecordScanner("csv")
    for framing in ("riegeli", "array_record"):
        with pytest.raises(Unsupported, match=f"{framing} files cannot be indexed in parts"):
            _core.RecordScanner(framing)
    with pytest.raises(NotFound, match="no record 3: the stream has 3"):
        _core.Records(saved).place(3)
    with pytest.raises(IntegrityError):
        _core.Records(saved[:-1] + b"x")
    with pytest.raises(LimitExceeded, match="shards"):
        _core.index_records(_sources(STREAM), "delimited", limits=_core.Limits(records=0))


def _sources(data: bytes) -> _core.Sources:
    return _core.Sources([BytesSource(data)])


_SCRIPT = '''
import protoslice
from protoslice import _core
from protoslice.schema import bundled

KIND = "tensorflow.GraphDef"
GIB = 1 << 30
MARK = b"here it is"


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number, size):
    """The head of a length-delimited field of `size` bytes."""
    return varint(number << 3 | 2) + varint(size)


def constant(number, size):
    """The heads of a Const node whose tensor has `size` bytes of content, and how many bytes follow them."""
    parts = field(4, size)
    tensor = b"\\x08\\x01" + parts
    value = field(8, len(tensor) + size) + tensor
    entry = b"\\x0a\\x05value" + field(2, len(value) + size) + value
    name = f"big{number}".encode()
    node = field(1, len(name)) + name + b"\\x12\\x05Const" + field(5, len(entry) + size) + entry
    return field(1, len(node) + size) + node, size


class Made:
    """Six constants of a GiB each: heads, zeros, and a mark in the middle of each payload."""

    def __init__(self):
        self.parts = []
        at = 0
        for number in range(6):
            head, size = constant(number, GIB + number)
            self.parts += [(at, head), (at + len(head) + GIB // 2, MARK)]
            at += len(head) + size
        self.size = at
        self.zeros = bytes(1 << 20)

    def read(self, offset, length, /):
        if length <= len(self.zeros) and not any(at < offset + length and offset < at + len(b) for at, b in self.parts):
            return self.zeros[:length]
        out = bytearray(length)
        for at, data in self.parts:
            begin, end = max(at, offset), min(at + len(data), offset + length)
            if begin < end:
                out[begin - offset : end - offset] = data[begin - at : end - at]
        return bytes(out)


def memory():
    """The most memory that this process has held, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


made = Made()
flat = bundled().flat(KIND)
before = memory()
scanner = _core.Scanner(flat, KIND)
for at in range(0, made.size, 1 << 20):
    scanner.feed(made.read(at, min(1 << 20, made.size - at)))
index = scanner.finish(made.size)
proto = protoslice.open(made, KIND, index=index)
assert proto.size == made.size > 6 * GIB
for number in range(6):
    content = proto.merge(f'node[name="big{number}"].attr["value"].tensor.tensor_content')
    assert content.size == GIB + number
    head = len(constant(number, GIB + number)[0])
    at = GIB // 2
    assert content[at - 3 : at + len(MARK) + 3].read() == bytes(3) + MARK + bytes(3), number
chunks = list(proto.split(min_chunk=1 << 20, max_chunk=1 << 30))
assert [chunk.size for chunk in chunks[1:]] == [GIB + number for number in range(6)], chunks
last = chunks[-1].rope
assert last[GIB // 2 : GIB // 2 + 10].read() == MARK
assert proto.merge(omit_larger_than=100).size < 1000
assert index == _core.index_source([made], None, flat, KIND)
assert len(index) < 10_000
print(memory() - before)
'''


def test_a_proto_of_6_gib_is_indexed_from_a_stream_in_constant_memory() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64 << 20

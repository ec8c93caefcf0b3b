"""Proto beyond 4 GiB, made on the fly, indexed as a stream and served in part, in constant memory."""

import subprocess
import sys

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

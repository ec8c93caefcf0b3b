"""Random protos as hypothesis draws them."""

from __future__ import annotations

from random import Random

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from tests.support.protos.descriptors import descriptor_of
from tests.support.protos.schemas import ROOT, random_file
from tests.support.protos.writer import Writer

FLOORS = (1, 2, 16, 64, 1000, 16384)


class Case:
    """A random message type, the bytes of a message of it, and a floor to index it with."""

    # No dataclass: hypothesis prints those field by field, and this one is long.
    def __init__(self, made: str, file: FileDescriptorProto, data: bytes, rng: Random) -> None:
        self.made = made
        self.file = file
        self.root = root_class(file)
        self.data = data
        self.rng = rng
        self.floor = rng.choice(FLOORS)

    def __repr__(self) -> str:
        shown = self.data.hex() if len(self.data) < 100 else f"{len(self.data)} bytes"
        types = str(self.file) if self.file.ByteSize() < 400 else f"{len(self.file.message_type)} types"
        return f"<{self.made}: floor {self.floor}, {shown}, {types}>"

    @property
    def schema(self) -> bytes:
        """The types as a serialized `FileDescriptorSet`."""
        return FileDescriptorSet(file=[self.file]).SerializeToString()

    def message(self) -> Message:
        """Message that the protobuf runtime parses from the bytes."""
        return self.root.FromString(self.data)


def root_class(file: FileDescriptorProto) -> type[Message]:
    """The protobuf runtime's class for the root type of `file`, in a pool of its own."""
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(ROOT))


def make_case(seed: int, *, types: int = 3, fields: int = 8, budget: int = 60, odd: bool = True) -> Case:
    """The case that `seed` gives; smaller numbers give smaller ones."""
    rng = Random(seed)
    file = random_file(rng, messages=types, fields=fields)
    data = Writer(rng, budget, odd=odd).message(descriptor_of(root_class(file)))
    made = f"make_case({seed}, types={types}, fields={fields}, budget={budget}, odd={odd})"
    return Case(made, file, data, rng)


def cases(*, odd: bool = True, budget: int = 60) -> st.SearchStrategy[Case]:
    """Random cases. Only a seed and sizes are drawn, so that failures shrink to fewer types and fields."""
    return st.builds(
        make_case,
        st.integers(0, 2**64 - 1),
        types=st.integers(1, 3),
        fields=st.integers(1, 10),
        budget=st.integers(0, budget),
        odd=st.just(odd),
    )

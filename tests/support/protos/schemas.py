"""Random message types with every kind of field that a `.proto` file can declare, also as hypothesis strategies."""

from __future__ import annotations

from random import Random

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from tests.support.protos.writer import Writer, descriptor_of

ROOT = "t.M0"
"""The root type of every random file."""

_F = FieldDescriptorProto
_SCALARS = [kind for kind in range(1, 19) if kind not in (_F.TYPE_GROUP, _F.TYPE_MESSAGE, _F.TYPE_ENUM)]
_KEYS = [kind for kind in _SCALARS if kind not in (_F.TYPE_DOUBLE, _F.TYPE_FLOAT, _F.TYPE_BYTES)]
_TEXT = (_F.TYPE_STRING, _F.TYPE_BYTES)


def random_file(rng: Random, *, messages: int = 3, fields: int = 8) -> FileDescriptorProto:
    """Return a file of up to `messages` message types that refer to each other, with up to `fields` fields each."""
    file = FileDescriptorProto(name="t.proto", package="t", syntax=rng.choice(["proto2", "proto3"]))
    enum = file.enum_type.add(name="E")
    enum.options.allow_alias = True
    for name, number in (("ZERO", 0), ("TWO", 2), ("A_TWO", 2), ("LAST", 2**31 - 1), ("BELOW", -1)):
        enum.value.add(name=name, number=number)
    names = [f"M{i}" for i in range(rng.randint(1, messages))]
    for name in names:
        builder = _Builder(rng, file.message_type.add(name=name), [f".t.{each}" for each in names], file.syntax)
        builder.fill(rng.randint(1, fields), f".t.{name}")
    return file


class _Builder:
    def __init__(self, rng: Random, message: DescriptorProto, types: list[str], syntax: str) -> None:
        self.rng = rng
        self.message = message
        self.types = types
        self.proto3 = syntax == "proto3"
        self.numbers: set[int] = set()

    def fill(self, count: int, full_name: str) -> None:
        """Add `count` fields to the message; some of them are members of oneofs."""
        adders = [self._singular, self._singular, self._repeated, self._repeated, self._map, self._oneof]
        if not self.proto3 and "G" not in full_name:
            adders.append(self._group)
        if self.rng.random() < 0.4:
            self._named()
        for _ in range(count):
            self.rng.choice(adders)(full_name)
        self._optionals()

    def _named(self) -> None:
        self.message.field.add(name="name", number=self._number(), type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)

    def _number(self) -> int:
        choices = [(1, 15), (1, 15), (16, 90), (91, 18_999), (20_000, 2**29 - 1), (2**29 - 3, 2**29 - 1)]
        while True:
            number = self.rng.randint(*self.rng.choice(choices))
            if number not in self.numbers:
                self.numbers.add(number)
                return number

    def _field(self, label: _F.Label.ValueType, kind: int | None = None) -> FieldDescriptorProto:
        number = self._number()
        field = self.message.field.add(name=f"f{number}", number=number, label=label)
        self._type(field, self._kind() if kind is None else kind)
        return field

    def _kind(self) -> int:
        draw = self.rng.random()
        if draw < 0.35:
            return _F.TYPE_MESSAGE
        return self.rng.choice(_TEXT) if draw < 0.6 else self.rng.choice([*_SCALARS, _F.TYPE_ENUM])

    def _type(self, field: FieldDescriptorProto, kind: int) -> None:
        field.type = _F.Type.ValueType(kind)
        if kind == _F.TYPE_MESSAGE:
            field.type_name = self.rng.choice(self.types)
        elif kind == _F.TYPE_ENUM:
            field.type_name = ".t.E"

    def _singular(self, _: str) -> None:
        self._field(_F.LABEL_OPTIONAL)

    def _repeated(self, _: str) -> None:
        field = self._field(_F.LABEL_REPEATED)
        if field.type not in (*_TEXT, _F.TYPE_MESSAGE) and self.rng.random() < 0.5:
            field.options.packed = not self.proto3

    def _map(self, full_name: str) -> None:
        field = self._field(_F.LABEL_REPEATED, _F.TYPE_MESSAGE)
        entry = self.message.nested_type.add(name=f"F{field.number}Entry")
        entry.options.map_entry = True
        field.type_name = f"{full_name}.{entry.name}"
        entry.field.add(name="key", number=1, type=self.rng.choice(_KEYS), label=_F.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL)
        self._type(value, self._kind())

    def _oneof(self, _: str) -> None:
        index = len(self.message.oneof_decl)
        self.message.oneof_decl.add(name=f"o{index}")
        for _i in range(self.rng.randint(1, 3)):
            self._field(_F.LABEL_OPTIONAL).oneof_index = index

    def _group(self, full_name: str) -> None:
        label = self.rng.choice([_F.LABEL_OPTIONAL, _F.LABEL_REPEATED])
        field = self._field(label, _F.TYPE_GROUP)
        group = self.message.nested_type.add(name=f"G{field.number}")
        field.name = group.name.lower()
        field.type_name = f"{full_name}.{group.name}"
        _Builder(self.rng, group, self.types, "proto2").fill(self.rng.randint(0, 3), field.type_name)

    def _optionals(self) -> None:
        """Make some singular fields of proto3 optional; their oneofs come after the real ones."""
        for field in self.message.field:
            plain = field.label == _F.LABEL_OPTIONAL and not field.HasField("oneof_index")
            if self.proto3 and plain and self.rng.random() < 0.3:
                field.proto3_optional = True
                field.oneof_index = len(self.message.oneof_decl)
                self.message.oneof_decl.add(name=f"_{field.name}")


FLOORS = (1, 2, 16, 64, 1000, 16384)


class Case:
    """A random message type, the bytes of one message, and a floor for its index."""

    # This is no dataclass, because hypothesis prints those field by field, and this one is long.
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
        """The message that the protobuf runtime parses from the bytes."""
        return self.root.FromString(self.data)


def root_class(file: FileDescriptorProto) -> type[Message]:
    """Return the protobuf runtime's class for the root type of `file`, from a separate pool."""
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(ROOT))


def make_case(seed: int, *, types: int = 3, fields: int = 8, budget: int = 60, odd: bool = True) -> Case:
    """Return the case for `seed`; smaller numbers give smaller cases."""
    rng = Random(seed)
    file = random_file(rng, messages=types, fields=fields)
    data = Writer(rng, budget, odd=odd).message(descriptor_of(root_class(file)))
    made = f"make_case({seed}, types={types}, fields={fields}, budget={budget}, odd={odd})"
    return Case(made, file, data, rng)


def cases(*, odd: bool = True, budget: int = 60) -> st.SearchStrategy[Case]:
    """Draw random cases. Hypothesis draws only a seed and sizes, so failures shrink to fewer types and fields."""
    return st.builds(
        make_case,
        st.integers(0, 2**64 - 1),
        types=st.integers(1, 3),
        fields=st.integers(1, 10),
        budget=st.integers(0, budget),
        odd=st.just(odd),
    )

"""Streams of records, either in files or in stores on a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from protoslice import _core, schema, varints
from protoslice.cli.models.files import errors_about, is_stream, spooled
from protoslice.cli.models.remote import RemoteContent, connect
from protoslice.cli.models.source import Content, RootType
from protoslice.cli.progress import Progress
from protoslice.concurrency import finish
from protoslice.errors import NotFound, Unsupported
from protoslice.facts import RecordsSummary
from protoslice.library.documents import StreamDocument
from protoslice.references import address_of, is_address
from protoslice.sources.ropes import Rope
from protoslice.streams import Records, open_records
from protoslice.streams.framing import Framing, checked_framing, written_framing
from protoslice.streams.selection import WHOLE, KeyIndex, RecordChoice, RecordPart, RecordType

_KEY_ROOM = 1 << 30
"""Maximum number of bytes in memory for the keys of a local stream."""
_KEY_RECORDS = 1 << 24
"""Maximum number of records that one search by key may find, because these records become one rope."""


@dataclass(frozen=True, slots=True)
class ChosenRecords:
    """The bytes of selected records in a framing, and the type of the records."""

    content: Content
    type: str | None
    """Full name of the message type of the records or of their selected parts. It is None if the type is unknown."""


class Stream(Protocol):
    """A stream of records, which a command reads."""

    def summary(self) -> RecordsSummary:
        """Return facts about the stream, such as its framing and its number of records."""

    def one(self, number: int) -> ChosenRecords:
        """Return record `number` without framing; raise `NotFound` if the stream has no such record."""

    def chosen(self, choice: RecordChoice, part: RecordPart, framing: Framing | None) -> ChosenRecords:
        """Return the records that `choice` selects, or a `part` of each of them, in `framing`.

        If `framing` is None, the stream's own framing is used. If that framing cannot be written, a similar framing
        is used.
        """


@contextmanager
def open_stream(name: str, file: str | None, framing: str | None, root: RootType) -> Iterator[Stream]:
    """Open the stream `name`: a local file, a folder of shards, a URI, or a store, in which `file` selects a file."""
    if is_address(name):
        if root.types is not None:
            raise Unsupported("--schema is only for files: the service already has the types of a store's records")
        address = address_of(name)
        with connect(address.service) as client:
            yield _RemoteStream(client, address.ref, file, framing, root.name)
        return
    if file is not None:
        raise Unsupported("--file selects a stream in a store: for a local file, pass its path")
    with ExitStack() as held:
        source = held.enter_context(spooled(name)) if is_stream(name) else name
        held.enter_context(errors_about(name))
        with Progress("indexing") as progress:
            records = open_records(source, root.name, framing=framing, progress=progress.up_to)
        yield _LocalStream(name, held.enter_context(records), root)


class _LocalStream:
    def __init__(self, name: str, records: Records, root: RootType) -> None:
        self._name = name
        self._records = records
        self._root = root

    def summary(self) -> RecordsSummary:
        records, fault = self._records, self._records.core.fault
        text = None if fault is None else f"{fault[1]} at byte {fault[0]}"
        return RecordsSummary(self._name, records.framing, records.type, len(records), records.core.end, text)

    def one(self, number: int) -> ChosenRecords:
        if not 0 <= number < len(self._records):
            raise NotFound(f"No record {number}: there are {len(self._records)} records")
        return ChosenRecords(self._records.record(number), self._records.type)

    def chosen(self, choice: RecordChoice, part: RecordPart, framing: Framing | None) -> ChosenRecords:
        choice.check()
        records = self._records
        flat = self._flat()
        name = records.type if flat is not None else None
        ranges = choice.ranges(len(records), None if choice.key is None else self._index(choice.key, flat))
        form = framing or written_framing(records.framing)
        if part == WHOLE:
            return ChosenRecords(Rope(records.core.rope(ranges, form), records.sources), records.type)
        fields = [*part.fields] or None
        rope = records.core.views(ranges, form, flat, name, part.path, fields, part.omit_larger_than)
        document = StreamDocument(records.core, name, flat, records.limits)
        return ChosenRecords(Rope(rope, records.sources), document.type_at(ranges, part.path))

    def _index(self, key: str, flat: _core.Schema | None) -> KeyIndex:
        """Return an index of the records by their value at `key`. This reads the whole stream once."""
        kind = RecordType(self._records.type if flat is not None else None, flat)
        index = KeyIndex(self._records.core, kind, key, _KEY_ROOM, _KEY_RECORDS)
        finish(index.steps())
        return index

    def _flat(self) -> _core.Schema | None:
        """Return the schema of the records' type in the form of the engine, or None for an undeclared type."""
        name, types = self._records.type, self._root.types
        if name is not None:
            with suppress(Unsupported):
                return schema.find(name, [] if types is None else [types]).flat(name)
        return None


class _RemoteStream:
    def __init__(self, client: Any, ref: str, file: str | None, framing: str | None, type_name: str | None) -> None:
        self._client = client
        self._ref: str = client.store(ref, names=False).id
        given = {"file": file, "framing": framing, "type": type_name}
        self._params = [(name, value) for name, value in given.items() if value is not None]

    def summary(self) -> RecordsSummary:
        found: RecordsSummary = self._client.records(self._ref, **dict(self._params)).summary
        return found

    def one(self, number: int) -> ChosenRecords:
        source = self._client.source(self._ref, f"records/{number}", self._params)
        return ChosenRecords(RemoteContent(source), source.facts.headers.get("x-protobuf-message"))

    def chosen(self, choice: RecordChoice, part: RecordPart, framing: Framing | None) -> ChosenRecords:
        form = framing or written_framing(checked_framing(self.summary().framing))
        source = self._client.source(
            self._ref, "records", [*self._params, *choice.params(), *part.params(), ("format", form)]
        )
        return ChosenRecords(RemoteContent(source), source.facts.headers.get("x-protobuf-message"))


def delimited_runs(content: Content, most: int) -> Iterator[bytes]:
    """Split delimited records into runs of about `most` bytes, each of which consists of complete records."""
    rest = b""
    for piece in content.pieces():
        rest += piece
        if len(rest) >= most:
            *_, (_, end) = (0, 0), *varints.records(rest)
            if end:
                yield rest[:end]
                rest = rest[end:]
    if rest:
        yield rest

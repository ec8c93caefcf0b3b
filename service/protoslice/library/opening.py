"""Opening of protos: a `Proto` can be made from a path, a URI, bytes or any object with range reads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from protoslice import _core, schema
from protoslice.detection import Detection, look_at
from protoslice.errors import CorruptModel, Unsupported, named_options
from protoslice.library.indexing import Form, IndexingTerms, ProtoFile, decode, index
from protoslice.library.proto import Proto
from protoslice.sources.files import BytesSource, FileObjectSource
from protoslice.sources.opening import SourceLike, as_source, filename_of, opened_by
from protoslice.sources.source import RangeSource

NAMED: Final = "type given by the caller"
_DECODED_IN_MEMORY: Final = 8 << 20
"""Largest number of bytes of decoded records in memory; more bytes are written to a temporary file."""

Progress = Callable[[int, int], object]


@named_options
def open_proto(
    source: SourceLike,
    type: str | None = None,
    *,
    types: schema.MessageTypes | None = None,
    index: bytes | None = None,
    floor: int = _core.DEFAULT_FLOOR,
    limits: _core.Limits | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Proto:
    """Open a proto, which may be serialized, chunked or a text, in a file or in other bytes.

    The bytes are indexed but not parsed, so that even a huge file needs little memory. Close the proto after use, or
    use it in a `with` statement.

    Args:
        source: Path, URI, bytes, seekable file, or object with `size` and `read(offset, length)`.
        type: Full name of the root's message type; None detects the type.
        types: Message types in addition to the bundled ones.
        index: `Proto.index_bytes` of the same bytes, which makes the scan unnecessary.
        floor: Size in bytes of the smallest indexed message; smaller messages are parsed on use.
        limits: Limits that protect against hostile input.
        progress: Function that is called now and then with the number of bytes done and the total.
        storage_options: Options of the storage, if the source is a URI.

    Returns:
        The proto.

    Raises:
        NotFound: There is no such file or type.
        CorruptModel: The bytes are not a valid proto.
        Unsupported: The file is of a kind other than a proto.

    Examples:
        >>> with protoslice.open("model.onnx") as proto:
        ...     proto.type, proto.size
        ('onnx.ModelProto', 37000421)
    """
    opening, filename = as_source(source, storage_options), filename_of(source)
    owned = opened_by(opening, source)
    terms = IndexingTerms(_Types(types), limits=limits, decoding=limits, floor=floor, index=index, progress=progress)
    try:
        proto = _open(opening, look_at(opening, filename), filename, type, terms)
    except BaseException:
        for taken in owned:
            taken.close()
        raise
    proto.own(*owned)
    return proto


def open_looked_at(
    source: RangeSource,
    detection: Detection,
    filename: str,
    type: str | None,
    *,
    types: schema.MessageTypes | None = None,
    progress: Progress | None = None,
) -> Proto:
    """Open a proto according to its `detection`, which `look_at` has returned.

    If `type` is not None, it overrides the detected type. `types` take precedence over the bundled types. Closing the
    proto leaves `source` open.
    """
    return _open(source, detection, filename, type, IndexingTerms(_Types(types), progress=progress))


def _open(
    source: RangeSource, detection: Detection, filename: str | None, type: str | None, terms: IndexingTerms
) -> Proto:
    type_name, why = type or detection.type_name, detection.why if type is None else NAMED

    def opened(form: Form, type_name: str | None) -> Proto:
        return _indexed(ProtoFile(source, form, type_name, why, filename, tell=form == "chunked" and not type), terms)

    if detection.kind == "riegeli":
        return opened("chunked", type)
    if detection.kind != "text" or type_name is None:
        return opened("serialized", _type_of_message(detection, type))
    if type is None:
        return opened("text", type_name)
    try:  # a serialized proto may look like text, so it is tried first
        return opened("serialized", type)
    except CorruptModel:
        return opened("text", type)


def _type_of_message(detection: Detection, type: str | None) -> str | None:
    """Return the type of a serialized message, or None if it is unknown.

    Raise `Unsupported` for other kinds of files, unless the caller named a `type`.
    """
    if type is None and detection.kind not in {"proto", "unknown"}:
        raise Unsupported(f"{detection.why} (to read it as a protobuf all the same, pass its type)")
    return type or (detection.type_name if detection.kind == "proto" else None)


def _indexed(file: ProtoFile, terms: IndexingTerms) -> Proto:
    side = _DecodedBytes(file.form)
    try:
        found = index(decode(file, side, terms), terms)
        proto = Proto(
            found.sources,
            index=found.index,
            flat=found.flat,
            image=found.image,
            limits=terms.limits,
            form=file.form,
            why=found.why,
            own_plan=found.own_plan,
        )
    except BaseException:
        side.close()
        raise
    proto.own(side)
    return proto


@dataclass(frozen=True, slots=True)
class _Types:
    """The types of `extra`, if it is not None, and the bundled types."""

    extra: schema.MessageTypes | None = None

    def of(self, name: str) -> schema.TypeSchema:
        return self._set(name).kept(name)

    def flat(self, name: str) -> _core.Schema:
        return self._set(name).flat(name)

    def _set(self, name: str) -> schema.MessageTypes:
        return schema.find(name, [] if self.extra is None else [self.extra])


class _DecodedBytes:
    """A destination of decoded bytes: a text stays in memory, and records above 8 MiB are in a temporary file."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._text = b""
        self._file: BinaryIO | None = None

    def write(self, data: bytes, /) -> None:
        if self._form == "text":
            self._text += data
            return
        if self._file is None:
            self._file = cast(BinaryIO, tempfile.SpooledTemporaryFile(_DECODED_IN_MEMORY))  # noqa: SIM115 - see close
        self._file.write(data)

    def source(self) -> RangeSource:
        return BytesSource(self._text) if self._file is None else FileObjectSource(self._file)

    def close(self) -> None:
        """Release the memory, or remove the temporary file."""
        if self._file is not None:
            self._file.close()

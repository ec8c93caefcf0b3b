"""Opening a proto: what it is told to be, its index, and the image of what does not stand there serialized."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from protoslice import _core, schema
from protoslice.chunked import tell_type
from protoslice.errors import CorruptModel, InvalidInput, Unsupported
from protoslice.library import SMALLEST_FLOOR, Proto
from protoslice.schema.detection.detect import HEAD
from protoslice.sources import BytesSource, FileObjectSource, FileSource, RangeSource, SourceLike, as_source

__all__ = ["look_at", "open_looked_at", "open_proto"]

NAMED: Final = "it was named"
_SMALL: Final = 1 << 20
_IN_MEMORY: Final = 8 << 20  # decoded records beyond this go to a temporary file


def open_proto(
    source: SourceLike,
    type: str | None = None,
    *,
    types: schema.MessageTypes | None = None,
    index: bytes | None = None,
    floor: int = _core.DEFAULT_FLOOR,
    limits: _core.Limits | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Proto:
    """Open a proto, raw or chunked: a path, bytes, a seekable file, or any object with range reads.

    `type` names the root's message type where it cannot be detected; `types` has it when it is not a bundled one.
    `index` spares the scan when it is what `Proto.index_bytes` gave for the same bytes. Messages below `floor` bytes
    are looked into on demand: a small floor makes a large index.
    `progress` is called now and then, as long as that takes, with how much has been looked at and how much there is.
    """
    opening, filename = as_source(source), _filename(source)
    owned = [opening] if opening is not source and isinstance(opening, FileSource) else []
    try:
        opener = _Opener(opening, look_at(opening, filename), filename, type, types, limits=limits, progress=progress)
        proto = opener.proto(index, floor)
    except BaseException:
        for taken in owned:
            taken.close()
        raise
    proto.own(*owned)
    return proto


def look_at(source: RangeSource, filename: str | None) -> schema.Detection:
    """What `source` is taken for."""
    return schema.detect(source.read(0, min(source.size, HEAD)), filename, source.size)


def open_looked_at(
    source: RangeSource,
    detection: schema.Detection,
    filename: str,
    type: str | None,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> Proto:
    """Open a proto of which `look_at` has told what it is; `type` names the root's message type, if somebody does."""
    return _Opener(source, detection, filename, type, progress=progress).proto(None, _core.DEFAULT_FLOOR)


@dataclass(frozen=True, slots=True)
class _Opener:
    source: RangeSource
    detection: schema.Detection
    filename: str | None
    type: str | None
    types: schema.MessageTypes | None = None
    limits: _core.Limits | None = None
    progress: Callable[[int, int], object] | None = None

    def proto(self, index: bytes | None, floor: int) -> Proto:
        detection = self.detection
        if detection.kind == "riegeli":
            return self._chunked(index, floor)
        if detection.kind != "text" or (self.type or detection.type_name) is None:
            return self._binary(detection, index, floor)
        if self.type is None:
            return self._text(str(detection.type_name), detection.why, index, floor)
        try:  # bytes may look like text, and be what they are named as after all
            return self._binary(detection, index, floor)
        except CorruptModel:
            return self._text(self.type, NAMED, index, floor)

    def _binary(self, detection: schema.Detection, index: bytes | None, floor: int) -> Proto:
        if detection.kind not in {"proto", "unknown"} and self.type is None:
            raise Unsupported(f"{detection.why}, not a serialized proto; name its type if it is one after all")
        type_name = self.type or (detection.type_name if detection.kind == "proto" else None)
        flat = self._flat(type_name)
        _check_floor(floor, self.source.size)
        index = index or self._index([self.source], None, flat, type_name, floor)
        why = detection.why if self.type is None else NAMED
        return Proto([self.source], index=index, flat=flat, limits=self.limits, why=why)

    def _text(self, type_name: str, why: str, index: bytes | None, floor: int) -> Proto:
        schema.check_text_size(self.source.size)
        types = schema.find(type_name, [] if self.types is None else [self.types])
        binary = schema.serialized(self.source.read(0, self.source.size), types.kept(type_name))
        sources, image = [self.source, BytesSource(binary)], _core.Rope([(1, 0, len(binary))])
        flat = self._flat(type_name)
        index = index or self._index(sources, image, flat, type_name, floor)
        return Proto(sources, index=index, flat=flat, image=image, limits=self.limits, form="text", why=why)

    def _chunked(self, index: bytes | None, floor: int) -> Proto:
        side = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - the proto owns it
        try:
            chunked = _core.Chunked(self.source, side, limits=self.limits, progress=self.progress)
            sources = [self.source, FileObjectSource(side)]
            type_name, why = (self.type, NAMED) if self.type else tell_type(chunked, sources, self.filename)
            flat = self._flat(type_name)
            image = chunked.image(flat, type_name, sources)
            _check_floor(floor, image.size)
            index = index or self._index(sources, image, flat, type_name, floor)
            proto = Proto(sources, index=index, flat=flat, image=image, limits=self.limits, form="chunked", why=why)
        except BaseException:
            side.close()
            raise
        proto.own(side)
        return proto

    def _index(
        self,
        sources: Sequence[RangeSource],
        image: _core.Rope | None,
        flat: _core.Schema | None,
        type_name: str | None,
        floor: int,
    ) -> bytes:
        return _core.index_source(
            sources, image, flat, type_name, floor=floor, limits=self.limits, progress=self.progress
        )

    def _flat(self, type_name: str | None) -> _core.Schema | None:
        if type_name is None:
            return None
        return schema.find(type_name, extra=[self.types] if self.types else []).flat(type_name)


def _check_floor(floor: int, size: int) -> None:
    least = SMALLEST_FLOOR if size > _SMALL else 1
    if not least <= floor < 1 << 63:
        raise InvalidInput(f"the floor is {floor}: for a proto of {size} bytes it is at least {least}")


def _filename(source: SourceLike) -> str | None:
    name = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    return os.path.basename(os.fspath(name)) if isinstance(name, str | os.PathLike) else None

"""Headers of safetensors and GGUF files as messages, so that they can be looked at by path like a proto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from protoslice import schema
from protoslice.detection.magic import GGUF, INDEX_ENDING, PIPELINE, SAFETENSORS
from protoslice.errors import Unsupported
from protoslice.formats.gguf import LIST, SCALARS, STRING, TYPES, Cursor, GgufHeader, read_header
from protoslice.formats.safetensors import SafetensorsFile, index_of
from protoslice.sources.source import RangeSource

_FIELDS: Final = {
    **dict.fromkeys((0, 2, 4, 10), "unsigned_integer"),
    **dict.fromkeys((1, 3, 5, 11), "integer"),
    **dict.fromkeys((6, 12), "number"),
    7: "truth",
    STRING: "text",
    LIST: "list",
}
"""Field of a `GgufValue` by the type of the value; that of a `GgufList` has an s at its end."""


def message_of(source: RangeSource, path: str, type_name: str) -> bytes:
    """The serialized message of type `type_name` for the header of `source`; `Unsupported` for that of a pipeline.

    Parts of a message joined are the message, so that none of them is large.
    """
    message = schema.bundled().message_class(type_name)
    if path.rpartition("/")[2] == PIPELINE:
        raise Unsupported(f"{path} is JSON, which has no parts by path: read it as a file")
    parts = _gguf(source, path) if type_name == GGUF else _safetensors(source, path)
    return b"".join(message(**part).SerializeToString(deterministic=True) for part in parts)


def _safetensors(source: RangeSource, path: str) -> Iterator[dict[str, Any]]:
    if path.endswith(INDEX_ENDING):
        yield from ({"weight_map": {name: file}} for name, file in index_of(source, path).items())
        return
    tensor = schema.bundled().message_class(f"{SAFETENSORS}Tensor")
    file = SafetensorsFile(source, path)
    yield from ({"metadata": {key: text}} for key, text in file.metadata.items())
    for number in range(len(file)):
        entry = file.entry(number)
        about = tensor(dtype=entry.dtype, shape=entry.shape, start=entry.start, end=entry.end)
        yield {"tensors": {file.name(number): about}}


def _gguf(source: RangeSource, path: str) -> Iterator[dict[str, Any]]:
    header = read_header(source, path)
    value, tensor = (schema.bundled().message_class(f"{GGUF}{part}") for part in ("Value", "Tensor"))
    yield {"version": header.version, "big_endian": header.big_endian}
    for key in header.metadata:
        yield {"metadata": {key: value(**_value(source, path, header, key))}}
    for info in header.tensors:
        name = TYPES[info.type].name if info.type in TYPES else str(info.type)
        yield {"tensors": {info.name: tensor(type=name, shape=info.shape, offset=info.offset)}}


def _value(source: RangeSource, path: str, header: GgufHeader, key: str) -> dict[str, Any]:
    value = header.metadata[key]
    return _read(Cursor(source, path, value.offset, ">" if header.big_endian else "<"), value.type)


def _read(cursor: Cursor, kind: int) -> dict[str, Any]:
    """The value of type `kind` at `cursor`, as the one member of a `GgufValue`."""
    if kind != LIST:
        return {_FIELDS[kind]: _plain(cursor, kind)}
    inner, count = cursor.list_head()
    if inner == LIST:
        return {"list": {"lists": [_read(cursor, LIST)["list"] for _ in range(count)]}}
    if inner in SCALARS:
        return {"list": {f"{_FIELDS[inner]}s": cursor.scalars(inner, count)}}
    return {"list": {f"{_FIELDS[inner]}s": [_plain(cursor, inner) for _ in range(count)]}}


def _plain(cursor: Cursor, kind: int) -> Any:
    return schema.text_of(cursor.string()) if kind == STRING else cursor.scalars(kind, 1)[0]

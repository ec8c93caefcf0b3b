"""Message types out of a `FileDescriptorSet` that somebody else made."""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.schema.counting import check_parts
from protoslice.schema.registry import MessageTypes, bundled_files

MAX_BYTES = 32 * 1024 * 1024
"""The largest serialized set that is taken unless asked otherwise."""

MAX_FILES = 10_000
_File = descriptor_pb2.FileDescriptorProto


def from_descriptor_set(data: bytes | Message, *, max_bytes: int = MAX_BYTES) -> MessageTypes:
    """The types of a `FileDescriptorSet`, in a pool of their own.

    Files may stand in any order. Imports of `google/protobuf/…` may be left out. `InvalidInput` says what is wrong with
    a set that can't be used, `LimitExceeded` that it is too large.
    """
    files = _files(data if isinstance(data, bytes) else data.SerializeToString(), max_bytes)
    pool = DescriptorPool()
    for file in _ordered(files):
        _add(pool, file)
    return MessageTypes(pool, files)


def _files(data: bytes, max_bytes: int) -> dict[str, _File]:
    """The files of a set by name."""
    if len(data) > max_bytes:
        raise LimitExceeded(f"the descriptor set has {len(data)} bytes; at most {max_bytes} are taken")
    check_parts(data)
    try:
        parsed = descriptor_pb2.FileDescriptorSet.FromString(data)
    except DecodeError as error:
        raise InvalidInput("this is no serialized google.protobuf.FileDescriptorSet") from error
    if not parsed.file:
        raise InvalidInput("the descriptor set holds no files; make it with protoc --descriptor_set_out")
    if len(parsed.file) > MAX_FILES:
        raise LimitExceeded(f"the descriptor set has {len(parsed.file)} files; at most {MAX_FILES} are taken")
    files: dict[str, _File] = {}
    for file in parsed.file:
        known = files.setdefault(file.name, file)
        if known is not file and known != file:
            raise InvalidInput(f"the descriptor set holds two different files named {_shown(file.name)}")
    return files


def _ordered(files: dict[str, _File]) -> list[_File]:
    """The files and what they import, each after its imports."""
    known = {file.name: file for file in bundled_files() if file.name.startswith("google/protobuf/")} | files
    ordered: list[_File] = []
    state: dict[str, bool] = {}
    pending = [(name, "") for name in reversed(files)]
    while pending:
        name, importer = pending.pop()
        if name not in known:
            hint = "make the set with protoc --include_imports"
            raise InvalidInput(f"{_shown(importer)} imports {_shown(name)}, which is not in the descriptor set; {hint}")
        if name not in state:
            state[name] = False
            pending.append((name, importer))
            pending += [(each, name) for each in known[name].dependency if not state.get(each)]
            _refuse_cycle(known[name], state)
        elif not state[name]:
            state[name] = True
            ordered.append(known[name])
    return ordered


def _refuse_cycle(file: _File, state: dict[str, bool]) -> None:
    for each in file.dependency:
        if state.get(each) is False:
            raise InvalidInput(f"{_shown(file.name)} and {_shown(each)} import each other")


def _add(pool: DescriptorPool, file: _File) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except Exception as error:  # the runtime raises TypeError today, with a text of any length
        reason = str(error).rpartition("pool: ")[2].strip() or type(error).__name__
        raise InvalidInput(f"the file {_shown(file.name)} is not valid: {reason[:300]}") from error


def _shown(name: str) -> str:
    return repr(name if len(name) <= 100 else name[:100] + "…")

"""The command `verify`, which reads a whole model and compares it with all its digests."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import typer

from protoslice import schema
from protoslice.cli.errors import ExitCode
from protoslice.cli.models.compared import chunks_like
from protoslice.cli.models.files import opened, opened_model
from protoslice.cli.models.output import STDIO
from protoslice.cli.models.remote import connect
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.source import RootType
from protoslice.cli.options import FileName, Json, SchemaFile, TypeName
from protoslice.cli.progress import Progress
from protoslice.cli.tables import counted, print_json, say
from protoslice.defaults import CONNECTIONS
from protoslice.errors import Conflict, CorruptModel, IntegrityError, NotFound, ProtosliceError, Unsupported
from protoslice.formats.report import comparing
from protoslice.library.models import LocalModel
from protoslice.library.opening import open_proto
from protoslice.library.proto import Proto
from protoslice.references import address_of, is_address
from protoslice.sizes import format_size
from protoslice.streams import open_records
from protoslice.streams.framing import DEFLATED
from protoslice.tensors.model import Tensor, Unreadable


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one comparison."""

    what: str
    """`file`, `chunk`, `proto`, `records` (of a chunked file), `record file` or `tensor`."""
    name: str
    size: int
    digest: bool
    """True if there is a digest to compare with."""
    error: str | None


def verify(file: FileName, type_name: TypeName = None, schema_file: SchemaFile = None, as_json: Json = False) -> None:
    """Read a whole model and verify all its checksums.

    For a store, the command verifies the checksums of its files and chunks. For a local file, it verifies the checksums
    in the file itself, if its format has checksums, as chunked files and tensor bundles do.

    Example: protoslice verify http://127.0.0.1:8000/v1/stores/resnet50:3
    """
    root = root_type(type_name, schema_file)
    if is_address(file):
        root.check_unused()
    checks = list(_of_store(file) if is_address(file) else _of_file(file, root))
    bad = [check for check in checks if check.error is not None]
    if as_json:
        print_json({"sound": not bad, "checks": [asdict(check) for check in checks]})
    else:
        say(_summary(checks))
        for check in bad:
            say(f"bad: {check.what} {check.name}: {check.error}", sys.stderr)
    if bad:
        raise typer.Exit(ExitCode.FAILED)


_NAMED: Final = {"records": "chunked file"}
"""The names of checks in messages, if they differ from the names in JSON."""


def _summary(checks: list[Check]) -> str:
    counts = Counter(_NAMED.get(check.what, check.what) for check in checks if check.digest and check.error is None)
    # Chunks are not counted again, because they are parts of the root file.
    size = sum(check.size for check in checks if check.digest and check.error is None and check.what != "chunk")
    without = sum(not check.digest and check.error is None for check in checks)
    bad = sum(check.error is not None for check in checks)
    if without == len(checks):
        return "well-formed, but has no checksums to verify (stores on a service have them)"
    verified = ", ".join(counted(count, what) for what, count in counts.items()) or "nothing"
    more = f"; {without} without checksum" if without else ""
    return f"{f'{bad} damaged' if bad else 'OK'}: {verified} verified ({format_size(size)}){more}"


def _of_store(name: str) -> Iterator[Check]:
    address = address_of(name)
    with connect(address.service) as client:
        store = client.store(address.ref, names=False)
        chunks = list(client.chunks(store.id)) if store.chunks else []
        passed: list[str | None] = [None] * len(chunks)
        with Progress("verifying", sum(each.size for each in store.files)) as progress:
            for file in store.files:
                source = client.source(store.id, f"files/{file.path}")
                parts = source.parts(0, CONNECTIONS)
                if file.path == store.root and chunks:
                    parts = _digesting(parts, _chunks_in(source, store, chunks), passed)
                yield _digested("file", file.path, file, parts, progress)
            for chunk, sha256 in zip(chunks, passed, strict=True):
                yield _of_chunk(client, store, chunk, sha256, progress)


class _Extent(NamedTuple):
    """A range of the root whose bytes belong to a chunk.

    `before` has the bytes of the chunk that precede the range. The root does not contain these bytes.
    """

    start: int
    end: int
    chunk: int
    before: bytes


def _chunks_in(source: Any, store: Any, chunks: Sequence[Any]) -> list[_Extent]:
    """Return the ranges of the root that belong to chunks, in order.

    Chunks that cannot be computed from these ranges alone are left out.
    """
    try:
        known = store.type if store.type in schema.bundled() else None
        with open_proto(source, known) as proto:
            split = chunks_like(store, proto)
            if [(each.path, each.size) for each in split] != [(each.path, each.size) for each in chunks]:
                return []
            found = [_extents(number, each.rope.core.pieces()) for number, each in enumerate(split)]
    except ProtosliceError:
        return []
    extents = sorted(chain.from_iterable(found))
    return extents if all(one.end <= other.start for one, other in pairwise(extents)) else []


def _extents(number: int, pieces: Iterable[bytes | tuple[int, int, int]]) -> list[_Extent]:
    """Return the ranges of one chunk in the root, made from the `pieces` of its rope.

    Return an empty list if the chunk needs another source, is out of order, or ends with bytes that the root lacks.
    """
    found, literal = list[_Extent](), b""
    for piece in pieces:
        if isinstance(piece, bytes):
            literal += piece
        elif piece[0] != 0 or (found and piece[1] < found[-1].end):
            return []
        elif piece[2]:
            found.append(_Extent(piece[1], piece[1] + piece[2], number, literal))
            literal = b""
    return [] if literal else found


def _digesting(
    parts: Iterable[bytes | memoryview], extents: Sequence[_Extent], digests: list[str | None]
) -> Iterator[bytes | memoryview]:
    """Yield the `parts` of a root unchanged, and compute the SHA-256 of the chunks in `extents` at the same time.

    At the end, if all bytes arrived, store the results in `digests` at the numbers of the chunks.
    """
    hashes = {each.chunk: hashlib.sha256() for each in extents}
    at, rest = 0, iter(extents)
    extent = next(rest, None)
    for part in parts:
        end = at + len(part)
        while extent is not None and extent.start < end:
            if extent.start >= at:
                hashes[extent.chunk].update(extent.before)
            hashes[extent.chunk].update(memoryview(part)[max(0, extent.start - at) : extent.end - at])
            if extent.end > end:
                break
            extent = next(rest, None)
        yield part
        at = end
    if extent is None:
        for number, digest in hashes.items():
            digests[number] = digest.hexdigest()


def _of_chunk(client: Any, store: Any, chunk: Any, sha256: str | None, progress: Progress) -> Check:
    """Compare the SHA-256 of a chunk with its listed digest. If `sha256` is None, fetch the chunk to compute it."""
    name = f"{chunk.index} ({chunk.path or 'the base'})"
    if sha256 is None:
        progress.expect(chunk.size)
        parts = client.source(store.id, f"chunks/{chunk.index}").parts(0, CONNECTIONS)
        return _digested("chunk", name, chunk, parts, progress)
    return _check("chunk", name, chunk.size, lambda: _compare_digests(sha256, chunk.sha256))


def _digested(what: str, name: str, listed: Any, parts: Iterable[bytes | memoryview], progress: Progress) -> Check:
    """Compare the bytes of `parts` with the size and SHA-256 of `listed`."""

    def compare() -> None:
        digest, size = hashlib.sha256(), 0
        for part in parts:
            digest.update(part)
            size += len(part)
            progress.advance(len(part))
        if size != listed.size:
            raise CorruptModel(f"received {size} bytes, expected {listed.size}")
        _compare_digests(digest.hexdigest(), listed.sha256)

    return _check(what, name, listed.size, compare, digest=listed.sha256 is not None)


def _compare_digests(found: str | None, listed: str | None) -> None:
    if listed is not None and found != listed:
        raise CorruptModel(f"SHA-256 is {found}, expected {listed}")


def _of_file(name: str, root: RootType) -> Iterator[Check]:
    if name == STDIO:
        with opened(name, root) as proto:
            yield _proto(name, proto)
        return
    if not root.given and (check := _records(name)) is not None:
        yield check
        return
    with opened_model(name, root) as model, Progress("verifying") as progress:
        if model.proto is not None:
            yield _proto(model.model.root, model.proto)
        for tensor in _tensors(model):
            if isinstance(tensor.data, Unreadable):
                if isinstance(tensor.data.error, CorruptModel | NotFound):
                    yield Check("tensor", tensor.name, 0, True, str(tensor.data.error))
            elif compare := comparing(tensor):
                yield _check("tensor", tensor.name, tensor.size or 0, compare)
            progress.advance(tensor.size or 0)


def _records(name: str) -> Check | None:
    """Compare the records of a file with their checksums; return None for a file without checksums of records.

    TFRecord files (also compressed ones) and ArrayRecord files have such checksums.
    """
    if not os.path.isfile(name):
        return None
    try:
        stream = open_records(name)
    except ProtosliceError:
        return None  # the caller opens the file as a model, which reports the error
    with stream:
        if stream.framing not in DEFLATED | {"tfrecord", "array_record"}:
            return None

        def compare() -> None:
            for _ in stream:
                pass
            if stream.fault is not None:
                raise stream.fault

        return _check("record file", name, os.path.getsize(name), compare)


def _tensors(model: LocalModel) -> Iterator[Tensor]:
    try:
        yield from model.tensors
    except Unsupported:
        return  # a proto that is not a model has no tensors


def _proto(name: str, proto: Proto) -> Check:
    chunked = proto.form == "chunked"
    return _check("records" if chunked else "proto", name, proto.size, proto.verify, digest=chunked)


def _check(what: str, name: str, size: int, compare: Callable[[], object], *, digest: bool = True) -> Check:
    try:
        compare()
    except (CorruptModel, IntegrityError, Conflict) as error:
        return Check(what, name, size, digest, str(error))
    except ProtosliceError as error:
        error.message = f"{what} {name}: {error.message}"
        raise
    return Check(what, name, size, digest, None)

"""The verb `verify`: a model read whole, and compared with every digest there is of it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import typer

from protoslice import open_model
from protoslice.cli.addresses import address_of, is_address
from protoslice.cli.files import STDIO, opened
from protoslice.cli.options import FileName, Json, TypeName
from protoslice.cli.progress import Progress
from protoslice.cli.remote import PARALLEL, client_of
from protoslice.cli.show import print_json, say
from protoslice.errors import Conflict, CorruptModel, IntegrityError, NotFound, ProtosliceError, Unsupported
from protoslice.formats.model import Fault, Stored, Strings, Tensor, Tiled
from protoslice.formats.reading import read
from protoslice.sizes import format_size

__all__ = ["verify"]

NOT_SOUND = 3


@dataclass(frozen=True, slots=True)
class Check:
    """What came of comparing one thing."""

    what: str
    """`file`, `chunk`, `records`, `tensor`."""
    name: str
    size: int
    digest: bool
    """Whether there was anything to compare it with."""
    error: str | None


def verify(file: FileName, type_name: TypeName = None, as_json: Json = False) -> None:
    """Read a model whole, and compare it with every digest there is: of a store its files and chunks.

    Of a local file those that it holds: the records of a chunked proto, the checksums of a tensor bundle.

    Example: protoslice verify http://127.0.0.1:8000/v1/stores/resnet50:3
    """
    if is_address(file) and type_name is not None:
        raise Unsupported("the type of a store was settled when it was made: --type is for files")
    checks = list(_of_store(file) if is_address(file) else _of_file(file, type_name))
    bad = [check for check in checks if check.error is not None]
    if as_json:
        print_json({"sound": not bad, "checks": [asdict(check) for check in checks]})
    else:
        say(_told(checks))
        for check in bad:
            say(f"bad: {check.what} {check.name}: {check.error}", sys.stderr)
    if bad:
        raise typer.Exit(NOT_SOUND)


def _told(checks: list[Check]) -> str:
    compared = [check for check in checks if check.digest and check.error is None]
    kinds = dict.fromkeys(check.what for check in checks)
    counts = [f"{sum(check.what == kind for check in compared)} × {kind}" for kind in kinds]
    without = sum(not check.digest for check in checks)
    told = f"sound: {', '.join(counts) or 'nothing'} ({format_size(sum(check.size for check in compared))})"
    return told + (f"; {without} without a digest to compare with" if without else "")


def _of_store(name: str) -> Iterator[Check]:
    address = address_of(name)
    with client_of(address.service) as client:
        store = client.store(address.ref)
        chunks = list(client.chunks(store.id))
        with Progress("verifying", sum(each.size for each in (*store.files, *chunks))) as progress:
            for file in store.files:
                source = client.source(store.id, f"files/{file.path}")
                yield _digested("file", file.path, file, source, progress)
            for chunk in chunks:
                source = client.source(store.id, f"chunks/{chunk.index}")
                yield _digested("chunk", f"{chunk.index} ({chunk.path or 'the base'})", chunk, source, progress)


def _digested(what: str, name: str, listed: Any, source: Any, progress: Progress) -> Check:
    """What comes of `source`, compared with the size and the sha-256 that are `listed`."""

    def compare() -> None:
        digest, size = hashlib.sha256(), 0
        for part in source.parts(0, PARALLEL):
            digest.update(part)
            size += len(part)
            progress.advance(len(part))
        if size != listed.size:
            raise CorruptModel(f"{size} bytes came, and {listed.size} are listed")
        if listed.sha256 is not None and digest.hexdigest() != listed.sha256:
            raise CorruptModel(f"its sha-256 is {digest.hexdigest()}, and {listed.sha256} is listed")

    return _check(what, name, listed.size, compare, digest=listed.sha256 is not None)


def _of_file(name: str, type_name: str | None) -> Iterator[Check]:
    size = os.path.getsize(name) if os.path.isfile(name) else 0
    if name == STDIO:
        yield _proto(name, type_name, size)
        return
    with open_model(name, type=type_name) as model:
        if model.model.proto is not None and not os.path.isdir(name):
            yield _proto(name, type_name, size)
        tensors = list(model)
    with Progress("verifying", sum(tensor.size or 0 for tensor in tensors)) as progress:
        for tensor in tensors:
            if isinstance(tensor.data, Fault):
                if isinstance(tensor.data.error, CorruptModel | NotFound):
                    yield Check("tensor", tensor.name, 0, True, str(tensor.data.error))
            elif _summed(tensor):
                yield _check("tensor", tensor.name, tensor.size or 0, lambda each=tensor: _compare(each))  # type: ignore[misc]
            progress.advance(tensor.size or 0)


def _proto(name: str, type_name: str | None, size: int) -> Check:
    with opened(name, type_name) as proto:
        chunked = proto.form == "chunked"
        return _check("records" if chunked else "proto", name, size or proto.size, proto.verify, digest=chunked)


def _summed(tensor: Tensor) -> bool:
    """Whether its model has a checksum of it that is compared when it is read."""
    data = tensor.data
    pieces = [tile.stored for tile in data.tiles] if isinstance(data, Tiled) else [data]
    return any(isinstance(piece, Strings) or (isinstance(piece, Stored) and piece.compare) for piece in pieces)


def _compare(tensor: Tensor) -> None:
    read(tensor, form="json" if isinstance(tensor.data, Strings) else "raw")


def _check(what: str, name: str, size: int, compare: Callable[[], None], *, digest: bool = True) -> Check:
    try:
        compare()
    except (CorruptModel, IntegrityError, Conflict) as error:
        return Check(what, name, size, digest, str(error))
    except ProtosliceError as error:
        error.message = f"{what} {name}: {error.message}"
        raise
    return Check(what, name, size, digest, None)

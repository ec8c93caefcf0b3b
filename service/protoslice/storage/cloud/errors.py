"""Translation of obstore's errors, without their texts, which may hold URLs with signatures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions as obstore

from protoslice.errors import (
    Conflict,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
    Unsupported,
)

_STATUS = re.compile(r"\bstatus code: ([45]\d\d)\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_NO_ROOM = "507"
_DENIED = frozenset({"401", "403"})
_NO_BUCKET = frozenset({" (NoSuchBucket)", " (ContainerNotFound)"})

_KINDS: tuple[tuple[type[Exception], type[ProtosliceError], str], ...] = (
    (FileNotFoundError, NotFound, "no such object"),
    (obstore.AlreadyExistsError, Conflict, "it already exists"),
    (obstore.PreconditionError, Conflict, "it has changed"),
    (obstore.NotModifiedError, Conflict, "it has changed"),
    (obstore.PermissionDeniedError, StorageDenied, "access denied"),
    (obstore.UnauthenticatedError, StorageDenied, "the credentials were rejected"),
    (obstore.NotSupportedError, Unsupported, "not supported by the storage"),
)


@contextmanager
def explained(doing: str, key: object, *, missing: type[ProtosliceError] = NotFound) -> Iterator[None]:
    """Turn an error of obstore in the block into a `ProtosliceError`; `missing` is the class for a 404."""
    try:
        yield
    except (obstore.BaseError, OSError, ValueError) as error:
        if isinstance(error, ProtosliceError):
            raise
        raise _explain(error, doing, key, missing) from None


def _code(error: Exception) -> str:
    """The storage's own code of an error, in parentheses, such as `NoSuchBucket`; empty when it told none."""
    code = _CODE.search(str(error))
    return "" if code is None else f" ({code[1]})"


def _explain(error: Exception, doing: str, key: object, missing: type[ProtosliceError]) -> ProtosliceError:
    code = _code(error)
    for kind, ours, why in _KINDS:
        if isinstance(error, kind):
            if ours is NotFound and (missing is not NotFound or code in _NO_BUCKET):
                ours = StorageUnavailable if missing is NotFound else missing
                why = "the bucket or container does not exist"
            return ours(f"cannot {doing} {str(key)!r}: {why}{code}")
    status = _STATUS.search(str(error))
    if status is not None and status[1] in _DENIED:  # obstore has no class for refusals of listings
        return StorageDenied(f"cannot {doing} {str(key)!r}: access denied{code}")
    answer = "it did not respond in time" if status is None else f"it responded with {status[1]}{code}"
    failed = StorageFull if status is not None and status[1] == _NO_ROOM else StorageUnavailable
    return failed(f"cannot {doing} {str(key)!r}: the storage failed, {answer}")

"""The errors that protoslice raises.

The tree below shows for each class who has to act, and what the error means.

`slug` is the last part of the `type` of the HTTP problem document that reports an error. `server/problems.py` has the
status and the texts for each slug. The client turns a problem document back into an error of the same class.

ProtosliceError
├── InvalidInput          the caller: a path, slice, size or option is invalid
│   ├── InvalidIndex          an index cannot be applied to a tensor; the class is an `IndexError` too
│   ├── ChecksumMismatch      the bytes do not match the checksum that the caller sent: send them again
│   ├── AlreadyComplete       the upload to which the bytes were sent is complete
│   └── InconsistentLength    the caller stated contradictory lengths of an upload
├── NotFound              the caller: a well-formed name or path does not exist
│   ├── Gone                  the name or path existed earlier
│   ├── NoTensor              an opened model has no such tensor; the class is a `KeyError` too
│   └── NoRoot                a view needs a root, but the store only has other files
├── Conflict              the caller: another caller was first, or a source has changed
│   ├── Changed               an item is not in the state that the caller expects, and was not changed
│   ├── StillNamed            names refer to a store that the caller wants to remove
│   └── WrongOffset           the offset of a request is not the offset of the upload
├── SpaceRemoved          the caller: the space of the request was removed
├── LimitExceeded         the caller or the operator: request less, or raise the limit
│   └── TooMany               too many things happen at the same time: try again later
│       ├── ClientLimit           one client does too much
│       └── SpaceLimit            all clients of a space together do too much
├── Unsupported           the caller: the request is valid, but not possible
│   ├── UnsupportedMediaType  the type of the request's body is not accepted
│   └── JoinedUpload          an upload that was joined from others accepts no bytes
├── CorruptModel          the owner of the file: its bytes are damaged or malformed
│   ├── InconsistentChunks    the metadata and the chunks of a chunked proto contradict each other
│   └── UnsoundModel          a model lacks files or fails its own checksums, and the caller required a sound model
├── IntegrityError        the operator: according to a checksum or length of Protoslice, bytes are damaged
└── StorageError          the operator: the storage fails
    ├── StorageUnavailable    the storage or a service does not respond: try again later
    │   └── DatabaseUnavailable   the SQL database does not respond in time
    ├── StorageDenied         the storage or a service refuses access
    │   ├── UnknownCaller         the credentials are missing or not accepted
    │   └── SourceDenied          the owner of an object that was registered in place refuses access
    └── StorageFull           the storage has no space left
        └── QuotaExceeded         the quota of a space is used up; its operator may raise the quota
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, iscoroutinefunction, isfunction, signature, unwrap
from typing import Any, ClassVar, Final, TypeVar, get_args

_C = TypeVar("_C", bound=Callable[..., object])
_POSITIONAL: Final = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
_SEVERAL_STRINGS: Final = re.compile(r"\b(Sequence|Iterable)\[str\]")


def named_options(call: _C) -> _C:
    """Make a function, or all public methods of a class, refuse unknown options.

    The error suggests the most similar option. The options of a `TypedDict` are checked too, which Python does not do.
    A single string is refused where several strings are expected, because it would be used as a list of characters.
    """
    if isinstance(call, type):
        for name, method in list(vars(call).items()):
            if isfunction(method) and (name == "__init__" or not name.startswith("_")):
                setattr(call, name, named_options(method))
        return call

    @cache
    def known() -> Mapping[str, str] | None:
        return options_of(call)

    @cache
    def positions() -> Sequence[str]:
        return [name for name, each in signature(call).parameters.items() if each.kind in _POSITIONAL]

    @wraps(call)
    def checked(*args: Any, **options: Any) -> Any:
        if (args or options) and (names := known()) is not None:
            what = call.__qualname__.removesuffix(".__init__")
            check_options(what, options, names)
            _check_strings(what, [*zip(positions(), args, strict=False), *options.items()], names)
        return call(*args, **options)

    @wraps(call)
    async def awaited(*args: Any, **options: Any) -> Any:
        return await checked(*args, **options)

    return awaited if iscoroutinefunction(call) else checked  # type: ignore[return-value]


def options_of(call: Callable[..., object]) -> Mapping[str, str] | None:
    """Return the names of the options of `call` with their annotations, including the members of a `TypedDict`.

    Return None if `call` accepts options with any name.
    """
    found = dict[str, str]()
    for name, parameter in signature(call).parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            options = eval(parameter.annotation, unwrap(call).__globals__)
            if not get_args(options):
                return None
            found |= {option: str(each) for option, each in get_args(options)[0].__annotations__.items()}
        elif name != "self" and parameter.kind in {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}:
            found[name] = str(parameter.annotation)
    return found


def check_options(call: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise a `TypeError` for an unknown option. The error names a similar option, or, without one, all options."""
    from difflib import get_close_matches

    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
            raise TypeError(f"{call}() has no option {name!r}: {hint}")


def _check_strings(call: str, given: Iterable[tuple[str, object]], known: Mapping[str, str]) -> None:
    """Raise a `TypeError` for a single string if the option's annotation in `known` requires several strings."""
    for name, value in given:
        if isinstance(value, str) and _SEVERAL_STRINGS.search(known.get(name, "")):
            raise TypeError(f"{call}() takes several strings as {name!r}: use [{value!r}], not {value!r}")


def missing_extra(purpose: str, extra: str) -> str:
    """Return an error message that names the extra of this package with which users install what is missing."""
    return f"{purpose}: install the extra '{extra}', in a checkout of Protoslice by pip install '.[{extra}]'"


def extra_of(module: str) -> str | None:
    """Return the name of this package's extra that installs `module`, or None if no extra installs it."""
    from importlib.metadata import requires

    name, found = module.partition(".")[0].replace("_", "-").lower(), set()
    for line in requires("protoslice") or ():
        wanted = re.match(r"([\w.-]+).*;.*extra == ['\"](\w+)['\"]", line)
        if wanted is not None and wanted[1].replace("_", "-").lower() == name:
            found.add(wanted[2])
    return "server" if "server" in found else min(found, default=None)


class ProtosliceError(Exception):
    """The base class of all errors of this package.

    The attributes `offset` (in bytes) and `path` (of a field) locate the problem, if its place is known.

    Examples:
        >>> try:
        ...     protoslice.open("missing.onnx")
        ... except protoslice.ProtosliceError as error:
        ...     print(type(error).__name__)
        NotFound
    """

    slug: str = "internal"
    """Last part of the `type` of the problem document that reports the error. Subclasses may inherit the slug."""

    upload_slug: ClassVar[str] = "internal"
    """The slug that replaces `slug` while an upload is received, because then the client has sent the faulty bytes."""

    request_id: str | None = None
    """Id of the failed request, or None for an error that was found locally.

    The service's operator can find the cause of the error by this id.
    """

    retry_after_seconds: float | None = None
    """Seconds to wait before another attempt, or None if a service did not state a time."""

    service: str | None = None
    """URL of the service that reported the error or did not respond. It is None for an error with a local cause."""

    def __init_subclass__(cls, *, slug: str | None = None, upload_slug: str | None = None) -> None:
        super().__init_subclass__()
        if slug is not None:
            cls.slug, cls.upload_slug = slug, upload_slug or slug

    def __init__(self, message: str, offset: int | None = None, path: str | None = None) -> None:
        super().__init__(message, offset, path)
        self.message = message
        self.offset = offset
        self.path = path

    def __str__(self) -> str:
        offset = None if self.offset is None else f"at byte {self.offset}"
        place = ", ".join(filter(None, (offset, self.path and f"in {self.path}")))
        return f"{self.message} ({place})" if place else self.message


class InvalidInput(ProtosliceError, ValueError, slug="invalid-input"):
    """Raised when a path, slice, size or option is invalid."""


class InvalidIndex(InvalidInput, IndexError):
    """Raised when an index cannot be applied to a tensor."""


class ChecksumMismatch(InvalidInput, slug="checksum-mismatch", upload_slug="digest-mismatch"):
    """Raised when bytes do not match the checksum that the caller sent."""


class AlreadyComplete(InvalidInput, slug="completed-upload"):
    """Raised when bytes are sent to a complete upload."""


class InconsistentLength(InvalidInput, slug="inconsistent-upload-length"):
    """Raised when statements about the total length of an upload contradict each other."""


class NotFound(ProtosliceError, LookupError, slug="not-found", upload_slug="invalid-input"):
    """Raised when a well-formed name or path does not exist."""


class SpaceRemoved(ProtosliceError, slug="not-found"):
    """Raised when a request would change a space that was removed. A repetition of the request fails too."""


class Gone(NotFound, slug="gone"):
    """Raised when a name or path existed earlier and no longer exists."""


class NoTensor(NotFound, KeyError):
    """Raised when a model has no tensor of that name."""


class NoRoot(NotFound, slug="no-root"):
    """Raised when a store has no root proto, but only files."""


class Conflict(ProtosliceError, slug="conflict"):
    """Raised when another caller was first, or a source has changed."""


class Changed(Conflict, slug="precondition-failed"):
    """Raised when an item is not in the state that the caller expects. The item was not changed."""


class StillNamed(Conflict, slug="still-named"):
    """Raised when names refer to a store that is to be removed, and the caller did not list these names."""

    names: tuple[tuple[str, str], ...] = ()
    """The first names that the caller did not list, each with its protocol and its text."""

    more: bool = False
    """True if there are more names that the caller did not list."""


class WrongOffset(Conflict, slug="mismatching-upload-offset"):
    """Raised when the offset of a request is not the offset of its upload."""

    expected: int | None = None
    provided: int | None = None


class LimitExceeded(ProtosliceError, slug="limit-exceeded"):
    """Raised when a limit is exceeded."""


class TooMany(LimitExceeded, slug="too-busy"):
    """Raised when too many things happen at the same time. `limit` is the maximum number, if known."""

    def __init__(
        self, message: str, offset: int | None = None, path: str | None = None, *, limit: int | None = None
    ) -> None:
        super().__init__(message, offset, path)
        self.limit = limit


class ClientLimit(TooMany, slug="client-limit"):
    """Raised when one client does too much at the same time."""


class SpaceLimit(TooMany, slug="space-limit"):
    """Raised when all clients of a space together do too much at the same time."""


class Unsupported(ProtosliceError, slug="unsupported"):
    """Raised when a valid request is not possible."""


class UnsupportedMediaType(Unsupported, slug="unsupported-media-type"):
    """Raised when the type of a request's body is not accepted."""


class JoinedUpload(Unsupported, slug="joined-upload"):
    """Raised when bytes are sent to an upload that was joined from other uploads."""


class CorruptModel(ProtosliceError, slug="corrupt-part", upload_slug="corrupt-model"):
    """Raised when a file is damaged or malformed."""


class InconsistentChunks(CorruptModel, slug="inconsistent-chunks"):
    """Raised when metadata and chunks of a chunked proto contradict each other."""


class UnsoundModel(CorruptModel, slug="unsound-model"):
    """Raised when a model lacks files or fails its checksums, and the caller required a sound model."""


class IntegrityError(ProtosliceError, slug="damaged-object"):
    """Raised when stored or sent bytes do not match a checksum or a length of Protoslice.

    A mismatch with a checksum in the model itself raises `CorruptModel` instead.
    """

    object: str | None = None
    """Name of the damaged stored object, or None if the error concerns other bytes."""


class StorageError(ProtosliceError, slug="storage-error"):
    """Raised when the storage fails."""


class StorageUnavailable(StorageError, slug="storage-unavailable"):
    """Raised when the storage or a service does not respond at the moment; try again later."""


class DatabaseUnavailable(StorageUnavailable, slug="database-unavailable"):
    """Raised when the catalogue's database does not respond in time, or is closed."""


class StorageDenied(StorageError, slug="storage-denied"):
    """Raised when the storage or a service refuses access."""


class UnknownCaller(StorageDenied, slug="unauthorized"):
    """Raised when a service requires credentials, or does not accept the credentials of the request."""


class SourceDenied(StorageDenied, slug="source-denied"):
    """Raised when the owner of an object that was registered in place refuses access."""


class StorageFull(StorageError, slug="out-of-space"):
    """Raised when the storage has no space left."""


class QuotaExceeded(StorageFull, slug="quota-exceeded"):
    """Raised when a space has used up its quota."""


OF_MODELS = (InvalidInput, NotFound, LimitExceeded, Unsupported, CorruptModel)
"""The errors that a model, or a request about a model, can cause. Other errors of reads come from the storage."""

WITH_SLUG: Final = tuple(
    each
    for each in [*globals().values()]
    if isinstance(each, type) and issubclass(each, ProtosliceError) and "slug" in each.__dict__
)[1:]
"""Every subclass of `ProtosliceError` with an own slug; base classes precede their subclasses."""

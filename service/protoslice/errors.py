"""Every error that protoslice raises, grouped by who must act.

`slug` is the last part of the `type` of the HTTP problem that reports the error. `server/problems.py` has status and
words of each slug, and the client raises the class again.

ProtosliceError
├── InvalidInput          the caller: a path, slice, size or option that does not parse
│   ├── InvalidIndex          an index that a tensor does not take; an `IndexError` too
│   ├── ChecksumMismatch      bytes that are not those the caller took a checksum of: send them again
│   ├── AlreadyComplete       bytes for an upload that is complete
│   └── InconsistentLength    statements about the length of an upload that contradict each other
├── NotFound              the caller: a well-formed name or path that matches nothing here
│   ├── Gone                  it was here, and is no more
│   ├── NoTensor              a tensor that an opened model does not have; a `KeyError` too
│   └── NoRoot                a store of files alone, of which a view of its root is asked
├── Conflict              the caller: somebody else was first, or a source has changed
│   ├── Changed               it is not what the caller has seen, and was to be changed only if it is
│   ├── StillNamed            names refer to a store that is to be removed
│   └── WrongOffset           a request for an upload that continues elsewhere
├── SpaceRemoved          the caller: the space of the request was removed
├── LimitExceeded         the caller or the operator: ask for less, or raise the limit
│   └── TooMany               for now
│       ├── ClientLimit           by one client
│       └── SpaceLimit            by all clients of a space
├── Unsupported           the caller: understood, but not possible
│   ├── UnsupportedMediaType  a body of a kind that is not taken
│   └── JoinedUpload          bytes for an upload that was joined from others
├── CorruptModel          the file: bytes that are not what they should be
│   ├── InconsistentChunks    a chunked proto whose metadata and chunks do not fit together
│   └── UnsoundModel          a model that lacks files, or fails checksums of its own, where only a sound one is taken
├── IntegrityError        the operator: what is kept or sent is damaged, as a checksum or a length of ours tells
└── StorageError          the operator: storage that fails
    ├── StorageUnavailable    for now
    │   └── DatabaseUnavailable   the SQL database does not answer in time
    ├── StorageDenied         until somebody grants it
    │   └── SourceDenied          by the owner of an object that is registered in place
    └── StorageFull           until somebody makes room
        └── QuotaExceeded         in a space, whose operator may also raise its quota
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
    """Make a function, or all public methods of a class, refuse unknown options, and suggest the nearest name.

    Options of a `TypedDict` are checked too, which Python does not do. A single string is refused where several are
    expected, since it would be taken for a list of characters.
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
    """Return the parameters of `call` with their annotations, those of a `TypedDict` too; None if it accepts any."""
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
    """Raise a `TypeError` for an unknown option, naming the nearest known options, or all."""
    from difflib import get_close_matches

    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
            raise TypeError(f"{call}() has no option {name!r}: {hint}")


def _check_strings(call: str, given: Iterable[tuple[str, object]], known: Mapping[str, str]) -> None:
    """Raise a `TypeError` for a single string if the annotation in `known` is for several strings."""
    for name, value in given:
        if isinstance(value, str) and _SEVERAL_STRINGS.search(known.get(name, "")):
            raise TypeError(f"{call}() takes several strings as {name!r}: use [{value!r}], not {value!r}")


def missing_extra(purpose: str, extra: str) -> str:
    """Return the message about missing packages, which an extra of this package installs."""
    return f"{purpose}: install the extra '{extra}', in a checkout of Protoslice by pip install '.[{extra}]'"


def extra_of(module: str) -> str | None:
    """Return the extra of this package that installs `module`; None if no extra does."""
    from importlib.metadata import requires

    name, found = module.partition(".")[0].replace("_", "-").lower(), set()
    for line in requires("protoslice") or ():
        wanted = re.match(r"([\w.-]+).*;.*extra == ['\"](\w+)['\"]", line)
        if wanted is not None and wanted[1].replace("_", "-").lower() == name:
            found.add(wanted[2])
    return "server" if "server" in found else min(found, default=None)


class ProtosliceError(Exception):
    """Base of all errors of this package.

    It has the byte `offset` and the field `path` of the problem, if they are known.

    Examples:
        >>> try:
        ...     protoslice.open("missing.onnx")
        ... except protoslice.ProtosliceError as error:
        ...     print(type(error).__name__)
        NotFound
    """

    slug: str = "internal"
    """Last part of the `type` of the problem that reports it; subclasses without one inherit it."""

    upload_slug: ClassVar[str] = "internal"
    """The same while an upload is taken in, when the bytes at fault are those of the client."""

    request_id: str | None = None
    """The id of the request that failed, where a service said so: its operator finds the cause by it."""

    retry_after_seconds: float | None = None
    """Seconds to wait before trying again; None where nothing was said."""

    service: str | None = None
    """URL of the service whose response, or whose silence, is the error; None for errors of local causes."""

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
    """Raised when a request would change a space that was removed; no other request helps."""


class Gone(NotFound, slug="gone"):
    """Raised when a name or path existed earlier and no longer exists."""


class NoTensor(NotFound, KeyError):
    """Raised when a model has no tensor of that name."""


class NoRoot(NotFound, slug="no-root"):
    """Raised when a store has no root proto, but only files."""


class Conflict(ProtosliceError, slug="conflict"):
    """Raised when another caller was first, or a source has changed."""


class Changed(Conflict, slug="precondition-failed"):
    """Raised when something is not, or no longer, in the state that the caller expects; nothing was changed."""


class StillNamed(Conflict, slug="still-named"):
    """Raised when names refer to a store that is to be removed, and the caller did not list them."""

    names: tuple[tuple[str, str], ...] = ()
    """Protocol and text of the first of the names that were not listed."""

    more: bool = False
    """True when there are more of them."""


class WrongOffset(Conflict, slug="mismatching-upload-offset"):
    """Raised when the offset of a request is not the offset of its upload."""

    expected: int | None = None
    provided: int | None = None


class LimitExceeded(ProtosliceError, slug="limit-exceeded"):
    """Raised when a limit is exceeded."""


class TooMany(LimitExceeded, slug="too-busy"):
    """Raised when too many things happen at the same time; `limit` is how many may, if known."""

    def __init__(
        self, message: str, offset: int | None = None, path: str | None = None, *, limit: int | None = None
    ) -> None:
        super().__init__(message, offset, path)
        self.limit = limit


class ClientLimit(TooMany, slug="client-limit"):
    """Raised when one client does too much at the same time."""


class SpaceLimit(TooMany, slug="space-limit"):
    """Raised when the clients of a space do too much at the same time."""


class Unsupported(ProtosliceError, slug="unsupported"):
    """Raised when a valid request is not possible."""


class UnsupportedMediaType(Unsupported, slug="unsupported-media-type"):
    """Raised when the type of a request's body is not accepted."""


class JoinedUpload(Unsupported, slug="joined-upload"):
    """Raised when bytes are sent to an upload that was joined from others."""


class CorruptModel(ProtosliceError, slug="corrupt-part", upload_slug="corrupt-model"):
    """Raised when a file is damaged or malformed."""


class InconsistentChunks(CorruptModel, slug="inconsistent-chunks"):
    """Raised when metadata and chunks of a chunked proto contradict each other."""


class UnsoundModel(CorruptModel, slug="unsound-model"):
    """Raised when a model lacks files or fails its checksums, and only a sound model was to be accepted."""


class IntegrityError(ProtosliceError, slug="damaged-object"):
    """Raised when stored or sent bytes are damaged, by a checksum or length of Protoslice, not of the model."""

    object: str | None = None
    """Name of the damaged stored object, or None."""


class StorageError(ProtosliceError, slug="storage-error"):
    """Raised when the storage fails."""


class StorageUnavailable(StorageError, slug="storage-unavailable"):
    """Raised when the storage or a service does not respond now; try again later."""


class DatabaseUnavailable(StorageUnavailable, slug="database-unavailable"):
    """Raised when the catalogue's database does not respond in time, or is closed."""


class StorageDenied(StorageError, slug="storage-denied"):
    """Raised when the storage or a service refuses access."""


class UnknownCaller(StorageDenied, slug="unauthorized"):
    """Raised when a service requires credentials, or does not accept the credentials of the request."""


class SourceDenied(StorageDenied, slug="source-denied"):
    """Raised when the owner of an object that was registered in place refuses access."""


class StorageFull(StorageError, slug="out-of-space"):
    """Raised when the storage has no room left."""


class QuotaExceeded(StorageFull, slug="quota-exceeded"):
    """Raised when a space has used up its quota."""


OF_MODELS = (InvalidInput, NotFound, LimitExceeded, Unsupported, CorruptModel)
"""Errors that a model, or a request about one, can cause; others come from its storage and may pass."""

WITH_SLUG: Final = tuple(
    each
    for each in [*globals().values()]
    if isinstance(each, type) and issubclass(each, ProtosliceError) and "slug" in each.__dict__
)[1:]
"""Every class below `ProtosliceError` with a problem that no more general class has, the most general first."""

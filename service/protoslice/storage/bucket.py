"""The backend of `s3://`, `gs://` and `az://`, which accesses the objects of a bucket through obstore."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore import exceptions
from obstore.store import from_url

from protoslice.concurrency.pipeline import one_ahead
from protoslice.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
    Unsupported,
)
from protoslice.storage.interface import PAGE, Abilities, Buffer, ObjectContent, ObjectStat, Page, Writer
from protoslice.storage.keys import ObjectKey
from protoslice.storage.ranges import RemoteStorage, check_inside, check_limit, check_span

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig


_CONNECTION: Final = (
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only http2_keep_alive_interval "
    "http2_keep_alive_timeout http2_keep_alive_while_idle http2_only pool_idle_timeout pool_max_idle_per_host "
    "proxy_ca_certificate proxy_excludes proxy_url randomize_addresses read_timeout root_certificate timeout "
    "user_agent"
)
_S3: Final = (
    "access_key_id bucket checksum_algorithm conditional_put container_authorization_token_file "
    "container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists default_region "
    "disable_bulk_delete disable_tagging endpoint endpoint_url imdsv1_fallback metadata_endpoint region "
    "request_payer role_arn role_session_name s3_express secret_access_key server_side_encryption session_token "
    "skip_signature sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id token unsigned_payload "
    "virtual_hosted_style_request web_identity_token_file"
)
_GS: Final = (
    "application_credentials base_url bearer_token bucket service_account service_account_key service_account_path "
    "skip_signature"
)
_AZ: Final = (
    "account_key account_name authority_host client_id client_secret container_name credential_type disable_tagging "
    "encryption_key endpoint fabric_cluster_identifier fabric_session_token fabric_token_service_url "
    "fabric_workload_host federated_token_file msi_endpoint msi_resource_id object_id sas_key skip_signature tenant_id "
    "token use_azure_cli use_emulator use_fabric_endpoint"
)
CONNECTION: Final = frozenset(_CONNECTION.split())
"""The connection options, which obstore accepts for every scheme."""
STORES: Final = {name: frozenset(text.split()) for name, text in {"s3": _S3, "gs": _GS, "az": _AZ}.items()}
"""The store options of each scheme."""

_UNSIGNED: Final = "unsigned_payload"
_UNSIGNED_VARIABLE: Final = "AWS_UNSIGNED_PAYLOAD"
_OPTION_PREFIXES: Final = {"s3": ("aws_",), "gs": ("google_",), "az": ("azure_storage_", "azure_")}


def sort_options(scheme: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options into the store's options and the connection's options, and return both.

    A name may also be that of an environment variable, such as `AWS_REGION`. Raise `InvalidInput` for an unknown
    option, or for an option that occurs twice.
    """
    store: dict[str, str] = {}
    connection: dict[str, str] = {}
    # obstore panics when a store option is passed as a connection option, or the reverse.
    for given, value in options.items():
        name = _plain(scheme, given)
        place = store if name in STORES[scheme] else connection
        if place is connection and name not in CONNECTION:
            known = ", ".join(sorted(STORES[scheme] | CONNECTION))
            raise InvalidInput(f"Unknown option {given!r} of {scheme} storage; use one of {known}")
        if name in place:
            raise InvalidInput(f"The storage option {name!r} is given twice")
        place[name] = value
    return store, connection


def spared(scheme: str, store: Mapping[str, str], *, encrypted: bool) -> dict[str, str]:
    """Return the store options, extended so that obstore does not hash the bodies of requests to S3.

    TLS already protects the bodies, and hashing would read every upload a second time. Without TLS, the options stay
    unchanged. They also stay unchanged if the operator has set the option about hashing, or its environment variable.
    """
    told = _UNSIGNED in store or _UNSIGNED_VARIABLE in os.environ
    return dict(store) if scheme != "s3" or told or not encrypted else {**store, _UNSIGNED: "true"}


def _plain(scheme: str, name: str) -> str:
    plain = name.lower()
    for prefix in _OPTION_PREFIXES[scheme]:
        if plain.startswith(prefix):
            return plain.removeprefix(prefix)
    return plain


ABILITIES: Final = Abilities()
PART_BYTES: Final = 16 << 20
UPLOADS: Final = 3
TRIES: Final = 2
"""Number of consecutive requests without any bytes after which a stream fails; obstore also retries each request."""
READ_SECONDS: Final = 15.0
"""Seconds within which a `stat`, a range read or one page of a listing must finish, retries included."""
STREAMED: Final = 2 << 20
"""Smallest size in bytes of a stream's pieces, except the last piece; half this size costs 10 % more processor time."""
LISTED: Final = 1000
"""Largest number of objects that a bucket lists in one response."""

# One request moves at most 16 MiB, so a minute is generous. obstore retries a stalled request.
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=20),
    "timeout": timedelta(seconds=60),
}
_ENDPOINTS: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
_PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_")
_WEAKENING: Final = ("allow_http", "allow_invalid_certificates")
"""Connection options that weaken TLS, so that TLS no longer protects the bodies."""
_RETRY: RetryConfig = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=45),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
MAX_PARTS: Final = 10_000
_STATUS = re.compile(r"\bstatus code: ([45]\d\d)\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_NO_ROOM = "507"
_DENIED = frozenset({"401", "403"})
_NO_BUCKET = frozenset({" (NoSuchBucket)", " (ContainerNotFound)"})

_KINDS: tuple[tuple[type[Exception], type[ProtosliceError], str], ...] = (
    (FileNotFoundError, NotFound, "no such object"),
    (exceptions.AlreadyExistsError, Conflict, "it already exists"),
    (exceptions.PreconditionError, Conflict, "it has changed"),
    (exceptions.NotModifiedError, Conflict, "it has changed"),
    (exceptions.PermissionDeniedError, StorageDenied, "access denied"),
    (exceptions.UnauthenticatedError, StorageDenied, "the credentials were rejected"),
    (exceptions.NotSupportedError, Unsupported, "not supported by the storage"),
)


def open(uri: str, options: Mapping[str, str]) -> CloudStorage:
    """Open a bucket or a folder of a bucket; see `CloudStorage.from_uri`."""
    return CloudStorage.from_uri(uri, options)


class CloudStorage(RemoteStorage):
    """A storage whose objects are in a bucket, or in a folder of a bucket."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        part_bytes: int = PART_BYTES,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._store = store
        self._read_seconds = read_seconds
        self.part_bytes = part_bytes

    @classmethod
    def from_uri(
        cls,
        uri: str,
        options: Mapping[str, str],
        *,
        read_seconds: float = READ_SECONDS,
    ) -> CloudStorage:
        """Open the storage at `uri` with `options`; obstore also reads the scheme's environment variables.

        Plain HTTP needs an endpoint that begins with `http://`, or the option `allow_http`. Raise `InvalidInput` when
        obstore rejects the URI or an option.
        """
        scheme = uri.partition("://")[0].lower()
        config, connection = sort_options(scheme, options)
        client: dict[str, Any] = {**_CLIENT}
        endpoints = [*options.values(), *(os.environ.get(name, "") for name in _ENDPOINTS)]
        if any(value.startswith("http://") for value in endpoints):
            client["allow_http"] = True
        client |= connection
        config = spared(scheme, config, encrypted=client.keys().isdisjoint(_WEAKENING))
        try:
            store = from_url(uri, config=_any(config), client_options=_any(client), retry_config=_RETRY)
        except Exception as error:
            raise InvalidInput(f"Invalid storage URI or options: {_reason(error, options)}") from None
        return cls(store, read_seconds=read_seconds)

    @property
    def abilities(self) -> Abilities:
        """All abilities except `open_file` and `free_space`."""
        return ABILITIES

    async def stat(self, key: ObjectKey) -> ObjectStat:
        with explained("find", key):
            async with asyncio.timeout(self._read_seconds):
                return _describe(key, await obstore.head_async(self._store, key.text))

    async def get(self, key: ObjectKey) -> ObjectContent:
        with explained("read", key):
            async with asyncio.timeout(self._read_seconds):
                answer = await obstore.get_async(self._store, key.text)
                return ObjectContent(_describe(key, answer.meta), bytes(await answer.bytes_async()))

    async def _found(self, key: ObjectKey, etag: str | None) -> ObjectStat | None:
        """Return the facts of an object whose read has failed; return None when this request fails too.

        In that case the caller reports the first error, which says more. A response to HEAD has no error code, so a
        missing bucket would look like a missing object.
        """
        with suppress(StorageUnavailable, StorageDenied, NotFound):
            return await self.pin(key, etag)
        return None

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        with explained("read", key):
            async with asyncio.timeout(self._read_seconds):
                return await self._get_range(key, start, end, if_etag)

    async def _get_range(self, key: ObjectKey, start: int, end: int, if_etag: str | None) -> bytes:
        check_span(start, end)
        if start == end:
            check_inside(key, end, (await self.pin(key, if_etag)).size)
            return b""
        options: GetOptions = {"range": (start, end)}
        if if_etag is not None:
            options["if_match"] = if_etag
        try:
            with explained("read", key):
                answer = await obstore.get_async(self._store, key.text, options=options)
                _describe(key, answer.meta).check_etag(if_etag)
                data = bytes(await answer.bytes_async())
        except StorageUnavailable:
            # obstore reports a range beyond the object's end like any other failure. The object's size shows which it
            # was.
            if (found := await self._found(key, if_etag)) is not None:
                check_inside(key, end, found.size)
            raise
        check_inside(key, end, start + len(data))
        return data

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        """See `Storage.stream`. After an interruption, a new request continues the stream."""
        if end is None:
            end = max(start, (await self.pin(key, if_etag)).size)
        check_span(start, end)
        if start == end:
            check_inside(key, end, (await self.pin(key, if_etag)).size)
        at, tries, clock = start, TRIES, asyncio.get_running_loop().time
        deadline = clock() + self._read_seconds
        while at < end:
            before = at
            try:
                with explained("read", key):
                    options: GetOptions = (
                        {"range": (at, end)} if if_etag is None else {"range": (at, end), "if_match": if_etag}
                    )
                    async with asyncio.timeout_at(deadline):
                        answer = await obstore.get_async(self._store, key.text, options=options)
                found = _describe(key, answer.meta)
                found.check_etag(if_etag)
                check_inside(key, end, found.size)
                if_etag = found.etag
                async with aclosing(one_ahead(answer.stream(min_chunk_size=STREAMED))) as body:
                    while True:
                        with explained("read", key):
                            async with asyncio.timeout_at(deadline):
                                piece = await anext(body, None)
                        if piece is None:
                            break
                        at += len(piece)
                        yield memoryview(piece)
                        deadline = clock() + self._read_seconds  # the consumer's delay is not counted
                if at < end:
                    raise StorageUnavailable(f"cannot read {str(key)!r}: the response ended at byte {at} of {end}")
            except StorageUnavailable:
                tries = TRIES if at > before else tries - 1
                if not tries or clock() >= deadline:
                    # As in `_get_range`: the range may be beyond the object's end.
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(deadline):
                            if (seen := await self._found(key, if_etag)) is not None:
                                check_inside(key, end, seen.size)
                    raise

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        with explained("write", key, missing=StorageUnavailable):
            result = await obstore.put_async(self._store, key.text, bytes(data), use_multipart=False)
        return _tag(result["e_tag"])

    async def put_parts(self, key: ObjectKey, parts: AsyncIterator[Buffer]) -> str:
        """Upload `parts` as one object and return its entity tag; if `parts` raises an error, abort and re-raise it."""
        with explained("write", key, missing=StorageUnavailable):
            result = await obstore.put_async(
                self._store,
                key.text,
                parts,
                use_multipart=True,
                chunk_size=self.part_bytes,
                max_concurrency=UPLOADS,
            )
        return _tag(result["e_tag"])

    async def writer(self, key: ObjectKey) -> Writer:
        return CloudWriter(self, key)

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        check_limit(limit)
        items: list[ObjectStat] = []
        with explained("list", prefix or "everything", missing=StorageUnavailable):
            pages = obstore.list(
                self._store,
                None if prefix is None else prefix.text,
                offset=None if after is None else after.text,
                chunk_size=min(limit + 1, LISTED),
            )
            async with asyncio.timeout(self._read_seconds):
                async for page in pages:
                    # Azure's emulator ignores the offset and lists from the start, so earlier keys are skipped here.
                    items += [item for item in _ours(page) if after is None or item.key > after]
                    if len(items) > limit:
                        return Page(tuple(items[:limit]), items[limit - 1].key)
        return Page(tuple(items), None)

    async def delete(self, key: ObjectKey) -> None:
        with suppress(NotFound), explained("delete", key):
            await obstore.delete_async(self._store, key.text)


def _ours(page: Iterable[ObjectMeta]) -> Iterator[ObjectStat]:
    """Yield the facts of a page's objects; skip an object whose name is not a valid key."""
    for found in page:
        with suppress(InvalidInput):
            yield _describe(ObjectKey(found["path"]), found)


def _describe(key: ObjectKey, meta: ObjectMeta) -> ObjectStat:
    return ObjectStat(key, meta["size"], _tag(meta["e_tag"]), meta["last_modified"])


def _tag(etag: str | None) -> str:
    if not etag:
        raise StorageUnavailable("this storage has no entity tags, which are needed to read safely")
    # Azure leaves out the quotes in listings, but not in other responses.
    return etag if etag.endswith('"') else f'"{etag}"'


def _reason(error: Exception, options: Mapping[str, str]) -> str:
    """Return the first line of obstore's error; if it contains a possible secret, return the error's class name."""
    told = str(error).partition("\n")[0]
    values = [*options.values(), *(value for name, value in os.environ.items() if name.startswith(_PREFIXES))]
    return type(error).__name__ if any(value and value in told for value in values) else told


def _any(options: dict[str, Any]) -> Any:
    """Return `options` as `Any`: the valid names depend on the scheme, so no static type describes them."""
    return options


class _Dropped(Exception):
    """The exception that makes obstore abort a multipart upload."""


class CloudWriter(Writer):
    """A writer that keeps at most one part in memory, apart from the parts that are being uploaded.

    The upload runs as a task that takes parts from a queue. The task is never cancelled, because a cancelled upload
    leaves invisible parts in the storage, which are billed. To abort the upload, the queue's reader raises an error.
    """

    def __init__(self, target: CloudStorage, key: ObjectKey) -> None:
        self._target = target
        self._key = key
        self._rest = bytearray()
        self._size = 0
        self._ended = False
        self._dropped = False
        self._queue: asyncio.Queue[Buffer] = asyncio.Queue(1)
        self._upload: asyncio.Task[str] | None = None

    @property
    def size(self) -> int:
        return self._size

    async def write(self, piece: Buffer) -> None:
        part = self._target.part_bytes
        with self._step():
            left = memoryview(piece).cast("B")
            self._size += left.nbytes
            if self._size > part * MAX_PARTS:
                raise LimitExceeded(
                    f"the object is too large: this storage allows {MAX_PARTS} parts of {part} bytes; raise "
                    "part_bytes of CloudStorage"
                )
            while left:
                if len(self._rest) == part:  # more follows: an object of one part needs one request
                    await self._send(self._take())
                room = part - len(self._rest)
                self._rest += left[:room]
                left = left[room:]

    async def commit(self) -> str:
        with self._step():
            if self._upload is None:
                etag = await self._target.put(self._key, bytes(self._rest))
            else:
                etag = await self._finish()
        self._ended = True
        return etag

    async def abort(self) -> None:
        self._ended = True
        self._rest.clear()
        if self._upload is None:
            return
        self._dropped = True
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(b"wake up")
        await asyncio.wait({self._upload})
        if not self._upload.cancelled():
            self._upload.exception()  # asyncio would otherwise log the exception as never retrieved

    @contextmanager
    def _step(self) -> Iterator[None]:
        if self._ended:
            raise InvalidInput("this writer is already closed, or an earlier write failed")
        self._ended = True  # stays True if the step fails
        yield
        self._ended = False

    async def _finish(self) -> str:
        upload = await self._send(self._take())
        await self._send(b"")
        return await asyncio.shield(upload)

    def _take(self) -> bytearray:
        """Return the buffered bytes without a copy, and begin a new buffer."""
        taken, self._rest = self._rest, bytearray()
        return taken

    async def _send(self, part: Buffer) -> asyncio.Task[str]:
        if self._upload is None:
            self._upload = asyncio.create_task(self._target.put_parts(self._key, self._parts()))
        putting = asyncio.ensure_future(self._queue.put(part))
        try:
            await asyncio.wait({putting, self._upload}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
        if self._upload.done():
            self._upload.result()
        return self._upload

    async def _parts(self) -> AsyncGenerator[Buffer, None]:
        while part := await self._queue.get():
            if self._dropped:
                raise _Dropped
            yield part


@contextmanager
def explained(doing: str, key: object, *, missing: type[ProtosliceError] = NotFound) -> Iterator[None]:
    """Convert an obstore error in the block to a `ProtosliceError`; `missing` is the class for a missing object."""
    try:
        yield
    except (exceptions.BaseError, OSError, ValueError) as error:
        if isinstance(error, ProtosliceError):
            raise
        raise _explain(error, doing, key, missing) from None


def _code(error: Exception) -> str:
    """Return the error code that the storage sent, as ` (NoSuchBucket)`; return "" if it sent none."""
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
    if status is not None and status[1] in _DENIED:  # obstore has no error class for a denied listing
        return StorageDenied(f"cannot {doing} {str(key)!r}: access denied{code}")
    answer = "it did not respond in time" if status is None else f"it responded with {status[1]}{code}"
    failed = StorageFull if status is not None and status[1] == _NO_ROOM else StorageUnavailable
    return failed(f"cannot {doing} {str(key)!r}: the storage failed, {answer}")

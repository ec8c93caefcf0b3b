"""The asynchronous client, which runs the methods of `Client` in threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from protoslice.client.client import Client, M
from protoslice.client.download.files import Downloaded, Progress
from protoslice.client.http.connection import Params
from protoslice.client.options import ClientOptions
from protoslice.client.parts import StorePart
from protoslice.client.records import RemoteRecords
from protoslice.client.threads import DaemonPool
from protoslice.client.upload.bodies import Pushable
from protoslice.client.upload.push import Pushed, PushOptions
from protoslice.errors import ProtosliceError, named_options

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")

_THREADS: Final = 16
_END: Final = object()


class _Cancelled(ProtosliceError):
    """The exception that ends a transfer after its task was cancelled."""


class _InThreads(Generic[W]):
    """The base class of asynchronous wrappers, which run a synchronous object's methods in a client's threads."""

    _sync: W

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        raise NotImplementedError

    async def _each(self, items: Iterator[T]) -> AsyncIterator[T]:
        while (item := await self._run(next, items, _END)) is not _END:
            yield cast(T, item)


def _coroutine(
    method: Callable[Concatenate[W, P], T],
) -> Callable[Concatenate[_InThreads[W], P], Coroutine[Any, Any, T]]:
    """Return a coroutine function that runs `method` in a thread."""

    @wraps(method)
    async def call(self: _InThreads[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(method, self._sync, *args, **kwargs)

    return call


def _iterator(
    method: Callable[Concatenate[W, P], Iterator[T]],
) -> Callable[Concatenate[_InThreads[W], P], AsyncIterator[T]]:
    """Return a function whose asynchronous iterator fetches each item of `method`'s iterator in a thread."""

    @wraps(method)
    def call(self: _InThreads[W], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._each(method(self._sync, *args, **kwargs))

    return call


@named_options
class AsyncClient(_InThreads[Client]):
    """Use a service with `async`. The methods of `Client` are available as coroutines and asynchronous iterators.

    At most 16 calls run at a time; further calls wait. If a task is cancelled, its transfer ends after the current
    piece.

    Args:
        url: URL of the service.
        **options: The same as for `Client`.

    Examples:
        >>> import asyncio
        >>> async def main():
        ...     async with protoslice.AsyncClient("http://127.0.0.1:8000", token=token) as client:
        ...         return (await client.store("demo:1")).type
        >>> asyncio.run(main())
        'onnx.ModelProto'
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self._sync = Client(url, **options)
        self._options = options
        self._pool = DaemonPool(_THREADS, "protoslice-client")
        self._awaited: set[asyncio.Future[Any]] = set()

    @property
    def url(self) -> str:
        """URL of the service."""
        return self._sync.url

    def __reduce__(self) -> tuple[Callable[[], AsyncClient], tuple[()]]:
        """See `Client.__reduce__`."""
        return partial(type(self), self.url, **self._options), ()

    def url_of(self, ref: str, view: str = "", params: Params = ()) -> str:
        """See `Client.url_of`."""
        return self._sync.url_of(ref, view, params)

    # Stores

    async def push(self, what: Pushable | AsyncIterable[bytes], **options: Unpack[PushOptions]) -> Pushed:
        """See `Client.push`. An asynchronous iterator of bytes can be pushed too."""
        with _CancellingProgress(options.get("progress")) as ending:
            options["progress"] = ending
            loop = asyncio.get_running_loop()
            pushed = _pieces(what, loop, ending) if isinstance(what, AsyncIterable) else what
            return await self._run(self._sync.push, pushed, **options)

    register = _coroutine(Client.register)
    stores = _iterator(Client.stores)
    store = _coroutine(Client.store)
    remove = _coroutine(Client.remove)
    restore = _coroutine(Client.restore)
    describe = _coroutine(Client.describe)

    # Views

    chunks = _iterator(Client.chunks)
    chunk = _coroutine(Client.chunk)
    pieces = _iterator(Client.pieces)
    tree = _iterator(Client.tree)
    metadata = _coroutine(Client.metadata)

    @overload
    async def merge(
        self,
        ref: str,
        path: str = "",
        *,
        fields: Sequence[str] = (),
        omit_larger_than: int | str | None = None,
        omit: Sequence[str] = (),
        file: str | None = None,
        type: str | None = None,
    ) -> bytes: ...
    @overload
    async def merge(
        self,
        ref: str,
        path: str = "",
        *,
        fields: Sequence[str] = (),
        omit_larger_than: int | str | None = None,
        omit: Sequence[str] = (),
        file: str | None = None,
        type: str | None = None,
        into: M,
    ) -> M: ...
    @wraps(Client.merge)
    async def merge(self, ref: str, path: str = "", **options: Any) -> Any:
        """See `Client.merge`."""
        return await self._run(partial(self._sync.merge, ref, path, **options))

    async def parts(self, ref: str, views: Iterable[str]) -> AsyncGenerator[StorePart, None]:
        """See `Client.parts`. Each part is read completely before it is yielded."""
        found = self._sync.parts(ref, views)

        def following() -> StorePart | None:
            part = next(found, None)
            return None if part is None else replace(part, pieces=iter([part.read()]))

        try:
            while (part := await self._run(following)) is not None:
                yield part
        finally:
            await self._run(found.close)

    tensors = _iterator(Client.tensors)
    summary = _coroutine(Client.summary)
    signatures = _iterator(Client.signatures)
    graph = _coroutine(Client.graph)
    tensor = _coroutine(Client.tensor)
    stats = _coroutine(Client.stats)
    diff = _iterator(Client.diff)
    tensor_delta = _coroutine(Client.tensor_delta)

    async def records(
        self, ref: str, *, file: str | None = None, framing: str | None = None, type: str | None = None
    ) -> AsyncRecords:
        """See `Client.records`."""
        found = await self._run(partial(self._sync.records, ref, file=file, framing=framing, type=type))
        return AsyncRecords(found, self)

    async def read(self, ref: str, view: str, offset: int, length: int, params: Params = ()) -> bytes:
        """Return `length` verified bytes at `offset` of a view.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            view: Path below the store, as for `Client.source`.
            offset: Offset of the first byte.
            length: Number of bytes.
            params: Query parameters of the view, as pairs.

        Returns:
            Exactly `length` bytes.

        Raises:
            InvalidInput: The range is not within the view.
            NotFound: There is no such store or view.

        Examples:
            >>> import asyncio
            >>> async def main():
            ...     async with protoslice.AsyncClient("http://127.0.0.1:8000", token=token) as client:
            ...         return await client.read("demo:1", "files/model.onnx", 0, 2)
            >>> asyncio.run(main()).hex()
            '080a'
        """
        return await self._run(lambda: self._sync.source(ref, view, params).read(offset, length))

    async def download(
        self,
        ref: str,
        target: str | os.PathLike[str],
        *,
        view: str | None = None,
        params: Params = (),
        progress: Progress | None = None,
    ) -> list[Downloaded]:
        """See `Client.download`."""
        with _CancellingProgress(progress) as ending:
            return await self._run(self._sync.download, ref, target, view=view, params=params, progress=ending)

    # Tags, schemas, spaces and tokens

    repositories = _iterator(Client.repositories)
    versions = _iterator(Client.versions)
    tags = _iterator(Client.tags)
    tag = _coroutine(Client.tag)
    untag = _coroutine(Client.untag)
    spaces = _iterator(Client.spaces)
    space_usage = _iterator(Client.space_usage)
    changes = _iterator(Client.changes)
    set_quota = _coroutine(Client.set_quota)
    change_quota = _coroutine(Client.change_quota)
    create_space = _coroutine(Client.create_space)
    remove_space = _coroutine(Client.remove_space)
    is_open = _coroutine(Client.is_open)
    sign_in_terms = _coroutine(Client.sign_in_terms)
    tokens = _iterator(Client.tokens)
    sign = _coroutine(Client.sign)
    put_webhook = _coroutine(Client.put_webhook)
    webhooks = _iterator(Client.webhooks)
    letters = _iterator(Client.letters)
    redeliver = _coroutine(Client.redeliver)
    remove_webhook = _coroutine(Client.remove_webhook)
    create_token = _coroutine(Client.create_token)
    revoke_token = _coroutine(Client.revoke_token)
    schemas = _iterator(Client.schemas)
    schema = _coroutine(Client.schema)
    put_schema = _coroutine(Client.put_schema)
    delete_schema = _coroutine(Client.delete_schema)

    # The rest

    async def close(self) -> None:
        """Wait until all calls that tasks await have ended, then close the connections.

        Calls of cancelled tasks may be left unfinished after one second, because the service may not respond.
        """
        if self._awaited:
            await asyncio.wait(self._awaited)
        await asyncio.to_thread(self._pool.close)
        self._sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        coming = asyncio.wrap_future(self._pool.submit(partial(call, *args, **kwargs)))
        self._awaited.add(coming)
        try:
            return await coming
        finally:
            self._awaited.discard(coming)


@named_options
class AsyncRecords(_InThreads[RemoteRecords]):
    """The records of a store, with the methods of `RemoteRecords` as coroutines and asynchronous iterators."""

    def __init__(self, records: RemoteRecords, client: AsyncClient) -> None:
        """Create the object, whose methods run in threads of `client`."""
        self.summary = records.summary
        """The stream's framing, message type, number of records, size in bytes, and damage."""
        self.type = records.type
        """Full name of the records' message type, or None if it is unknown."""
        self._sync = records
        self._run = client._run  # type: ignore[method-assign]

    def __len__(self) -> int:
        return len(self._sync)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """See `RemoteRecords.__iter__`."""
        async for records in self._each(self._sync.runs()):
            for record in records:
                yield record

    read = _coroutine(RemoteRecords.__getitems__)
    batches = _iterator(RemoteRecords.batches)
    matching = _coroutine(RemoteRecords.matching)
    sample = _coroutine(RemoteRecords.sample)
    parts = _coroutine(RemoteRecords.parts)


class _CancellingProgress:
    """A progress callback for the transfers of one task. It calls the caller's callback.

    After the task has ended, for example by cancellation, the next call raises an exception, which ends the transfer.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._gone = threading.Event()
        self._awaited: Future[Any] | None = None

    def __call__(self, done: int, total: int | None) -> None:
        self._check()
        if self._progress is not None:
            self._progress(done, total)

    def result(self, coming: Future[T]) -> T:
        """Return the result of `coming`; the end of the task cancels this future."""
        self._awaited = coming
        if self._gone.is_set():  # the task ended before `_awaited` was set, so `__exit__` could not cancel it
            coming.cancel()
        try:
            return coming.result()
        except CancelledError:
            self._check()
            raise

    def _check(self) -> None:
        if self._gone.is_set():
            raise _Cancelled("The transfer was cancelled")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._gone.set()
        if self._awaited is not None:
            self._awaited.cancel()


def _pieces(
    source: AsyncIterable[bytes], loop: asyncio.AbstractEventLoop, ending: _CancellingProgress
) -> Iterator[bytes]:
    """Yield the items of an asynchronous iterator to a thread, while the iterator runs in the event loop."""
    pieces = aiter(source)

    async def following() -> bytes | None:
        return await anext(pieces, None)

    while (piece := ending.result(asyncio.run_coroutine_threadsafe(following(), loop))) is not None:
        yield piece

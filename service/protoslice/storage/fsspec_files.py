"""The backend of `fsspec+NAME://`, which reads files of any fsspec file system, such as WebDAV, SFTP or HDFS.

The backend makes an entity tag from all facts that the file system reports about a file's version: size, etag, checksum
and times. After a read, the backend makes the tag again, and accepts the bytes only if the tag is unchanged.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from threading import Lock
from typing import Any, Final, TypeVar

from fsspec.registry import get_filesystem_class
from fsspec.spec import AbstractFileSystem

from protoslice.concurrency.executor import Executor
from protoslice.errors import InvalidInput, NotFound, ProtosliceError, StorageDenied, StorageUnavailable, Unsupported
from protoslice.storage.interface import PAGE, Abilities, ObjectStat, Page
from protoslice.storage.keys import ObjectKey
from protoslice.storage.ranges import ReadOnlyRemoteStorage, check_inside, check_limit, check_span
from protoslice.uris import parse_root

T = TypeVar("T")

ABILITIES: Final = Abilities(write=False)
PREFIX: Final = "fsspec+"
_VERSIONS: Final = (
    "etag",
    "ETag",
    "e_tag",
    "checksum",
    "content_hash",
    "md5Hash",
    "generation",
    "version_id",
    "VersionId",
)
_TIMES: Final = ("mtime", "modified", "last_modified", "LastModified", "modificationTime", "updated", "created")
_UNSAFE: Final = frozenset("%#?")
_SECONDS: Final = 60.0
_THREADS: Final = 8
WEBDAV: Final = frozenset({"webdav", "dav"})
"""The fsspec names of WebDAV, which the package webdav4 implements."""
_LOCAL: Final = frozenset({"file", "local"})


def open(uri: str, options: Mapping[str, str]) -> ForeignStorage:
    """Open a folder of an fsspec file system."""
    return ForeignStorage(uri, options)


class ForeignStorage(ReadOnlyRemoteStorage):
    """A read-only storage of the files below one folder of an fsspec file system.

    `options` are passed to the file system's class, and `true` and `false` become booleans. `port` becomes an integer,
    and `timeout` a number of seconds. WebDAV takes `scheme` (`http` for a server without TLS), `username` and
    `password`.
    """

    refusal = "fsspec file systems are read-only"

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        place = parse_root(root)
        protocol = place.scheme.removeprefix(PREFIX)
        self._open_fs = file_system(protocol, place.authority, options)
        # WebDAV's class takes the host as an option; the other classes find it in the path.
        self._address = "/".join(place.segments if protocol in WEBDAV else (place.authority, *place.segments))
        self._protocol = protocol
        self._fs: AbstractFileSystem | None = None
        self._opening = Lock()
        self._threads = Executor(_THREADS, PREFIX + protocol)

    @property
    def abilities(self) -> Abilities:
        """No ability beyond reading and listing."""
        return ABILITIES

    async def stat(self, key: ObjectKey) -> ObjectStat:
        """See `Storage.stat`; every call asks the file system, never a cache."""
        return await self._call(key, lambda fs: _stat(fs, key, self._path(fs, key)))

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        check_span(start, end)
        data = b""
        if start < end:
            with suppress(StorageUnavailable):  # the file may end before `start`; `stat` below decides
                data = await self._call(key, lambda fs: read_range(fs, self._path(fs, key), start, end))
        if if_etag is not None or len(data) != end - start or not data:
            # This request follows the read: if it still returns the tag `if_etag`, the file did not change meanwhile.
            found = await self.stat(key)
            found.check_etag(if_etag)
            check_inside(key, end, found.size)
        if len(data) != end - start:
            raise StorageUnavailable(f"object {str(key)!r} returned {len(data)} of {end - start} bytes")
        return data

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        """See `Storage.list`; reads the folders that the page needs, one at a time."""
        check_limit(limit)
        last = str(after) if after is not None else ""

        def listed(fs: AbstractFileSystem) -> list[ObjectStat]:
            walk = _walk(fs, lambda key: self._path(fs, key), prefix, last)
            return list(islice(walk, limit + 1))

        found = await self._call(prefix, listed)
        items = tuple(found[:limit])
        return Page(items, items[-1].key if len(found) > limit else None)

    async def close(self) -> None:
        """See `Storage.close`; a thread whose call hangs in the file system is left running."""
        self._threads.abandon()

    def _path(self, fs: AbstractFileSystem, key: ObjectKey | None) -> str:
        address = self._address if key is None else f"{self._address}/{key}"
        if self._protocol in WEBDAV:
            if not _UNSAFE.isdisjoint(address):
                raise Unsupported(
                    "fsspec's WebDAV file system cannot read names with %, # or ?, as it does not encode them"
                )
            return address
        return str(fs._strip_protocol(f"{self._protocol}://{address}"))

    async def _call(self, key: ObjectKey | None, work: Callable[[AbstractFileSystem], T]) -> T:
        """Run `work` in a thread and return its result; convert errors of the file system, and drop their texts."""
        name = "a folder" if key is None else f"object {str(key)!r}"
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._threads.run(lambda: work(self._connected()))
        except ProtosliceError:
            raise
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NotFound(f"{name} does not exist") from None
        except PermissionError:
            raise StorageDenied(f"the file system denies access to {name}") from None
        except Exception as error:
            raise StorageUnavailable(f"the file system cannot read {name} ({type(error).__name__})") from None

    def _connected(self) -> AbstractFileSystem:
        with self._opening:
            if self._fs is None:
                self._fs = self._open_fs()
            return self._fs


def _stat(fs: AbstractFileSystem, key: ObjectKey, path: str) -> ObjectStat:
    fs.invalidate_cache()  # a cached listing would describe an earlier version
    return _facts(key, fs.info(path))


def _facts(key: ObjectKey, info: Mapping[str, Any]) -> ObjectStat:
    if info.get("type") != "file":
        raise NotFound(f"there is no object {str(key)!r}")
    size = info.get("size")
    told = [f"{name}={info[name]}" for name in (*_VERSIONS, *_TIMES) if info.get(name) is not None]
    if not isinstance(size, int) or not told:
        raise Unsupported(
            f"cannot read {str(key)!r}: the file system reports neither a modification time nor an entity "
            "tag, so changes could not be detected"
        )
    etag = hashlib.sha256("\n".join([str(size), *told]).encode()).hexdigest()[:32]
    return ObjectStat(key, size, etag, _time(info))


def _time(info: Mapping[str, Any]) -> datetime:
    """Return the time of the last change in UTC, or the start of 1970 if the file system reports no time."""
    for name in _TIMES:
        match info.get(name):
            case datetime() as time:
                return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            case int() | float() as seconds:
                return datetime.fromtimestamp(seconds, UTC)
            case _:
                continue
    return datetime.fromtimestamp(0, UTC)


def _walk(
    fs: AbstractFileSystem, path_of: Callable[[ObjectKey | None], str], folder: ObjectKey | None, after: str
) -> Iterator[ObjectStat]:
    """Yield the files below `folder` whose keys come after `after`, in key order."""
    fs.invalidate_cache()
    try:
        found = fs.ls(path_of(folder), detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return
    below, least = "" if folder is None else f"{folder}/", after.encode()
    named = ((each["name"].rstrip("/").rpartition("/")[2], each) for each in found)
    # A folder is sorted with a slash after its name, because its keys continue with that slash.
    rows = sorted(
        ((f"{below}{name}{'/' if each['type'] == 'directory' else ''}".encode(), each) for name, each in named),
        key=lambda row: row[0],
    )
    for row, each in rows:
        with suppress(InvalidInput):  # a file whose name is not a valid key is skipped
            key = ObjectKey(row.decode().removesuffix("/"))
            if row.endswith(b"/"):
                if row > least or least.startswith(row):
                    yield from _walk(fs, path_of, key, after)
            elif row > least:
                yield _facts(key, each)


def file_system(protocol: str, authority: str, options: Mapping[str, str]) -> Callable[[], AbstractFileSystem]:
    """Return a function that opens the file system; that function may connect to a server.

    Raise `InvalidInput` for an unknown file system. Raise `Unsupported` for a file system that is not installed.
    """
    if protocol in _LOCAL:
        raise InvalidInput("Use file:// for files on this machine (symbolic links are not followed)")
    given = {name: _value(name, text) for name, text in options.items()}
    try:
        made_by = get_filesystem_class(protocol)
    except ValueError:
        raise InvalidInput(f"fsspec has no file system {protocol!r}") from None
    except ImportError as error:
        raise Unsupported(f"The file system {protocol!r} of fsspec is not installed: {error}") from None
    if protocol in WEBDAV:
        named: dict[str, Any] = {"base_url": f"{given.pop('scheme', 'https')}://{authority}"}
        if "username" in given:
            named["auth"] = (given.pop("username"), given.pop("password", ""))
    else:
        named = made_by._get_kwargs_from_urls(f"{protocol}://{authority}/")
    return lambda: made_by(**(named | given), skip_instance_cache=True)


def read_range(fs: AbstractFileSystem, path: str, start: int, end: int) -> bytes:
    """Return a file's bytes from `start` to `end`, or fewer if the file ends earlier. This call blocks."""
    if not WEBDAV.isdisjoint((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol):
        return _read_webdav(fs, path, start, end)
    if fs.async_impl or type(fs).cat_file is not AbstractFileSystem.cat_file:
        return bytes(fs.cat_file(path, start=start, end=end))
    # fsspec's default cache would read megabytes beyond each range.
    with fs.open(path, "rb", cache_type="none") as file:
        file.seek(start)
        return bytes(file.read(end - start))


def _read_webdav(fs: AbstractFileSystem, path: str, start: int, end: int) -> bytes:
    # A file object of webdav4 would request everything from `start` to the end, then close the connection.
    client = fs.client
    headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    with client.http.stream("GET", client.join_url(path), headers=headers, follow_redirects=False) as answer:
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise FileNotFoundError
        if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise PermissionError
        if answer.status_code == HTTPStatus.OK and answer.headers.get("content-length") != "0":
            raise Unsupported("the WebDAV server does not support ranges")
        if not answer.headers.get("content-range", "").startswith(f"bytes {start}-"):
            return b""
        data = bytearray()
        for piece in answer.iter_raw():
            data += piece
            if len(data) > end - start:
                raise OSError("the WebDAV server sent more bytes than requested")
        return bytes(data)


def _value(name: str, text: str) -> Any:
    if name in {"port", "timeout"}:
        try:
            return int(text) if name == "port" else float(text)
        except ValueError:
            raise InvalidInput(f"The option {name} must be a number") from None
    return {"true": True, "false": False}.get(text, text)

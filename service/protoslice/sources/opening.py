"""Functions that open a path, a URI, bytes or a file object as a source, and a folder as a set of files.

All functions block until the work is done.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, cast

from protoslice.concurrency.results import LruCache
from protoslice.defaults import MAX_FILES
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound
from protoslice.sources.files import BytesSource, FileObjectSource, FileSource, Folder
from protoslice.sources.source import Closable, ClosedAtEnd, FileSet, RangeSource
from protoslice.storage.interface import ObjectStat, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.registry import open_storage
from protoslice.storage.sources import open_source
from protoslice.storage.wrappers import PrefixStorage
from protoslice.uris import is_uri, local_path, parse_root

T = TypeVar("T")

BLOCK: Final = 64 << 10
"""Size of a block in bytes. A request reads whole blocks."""
_HELD: Final = 64 << 20
_AT_ONCE: Final = 4 << 20
"""Maximum number of bytes in one request. Longer reads use several concurrent requests."""


class BlockingReader:
    """A reader of one storage, whose methods block. Threads may share the reader."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._held: LruCache[tuple[str, int], bytes] = LruCache(most=_HELD, room=_HELD)
        self._lock = threading.Lock()
        self._process: int | None = os.getpid()

    def find(self, key: ObjectKey) -> ObjectStat | None:
        """Return the facts of the object, or None if there is no such object. This takes one request."""
        try:
            return self._run(lambda: self.storage.stat(key))
        except NotFound:
            return None

    def listed(self, prefix: ObjectKey | None, most: int) -> list[ObjectStat]:
        """Return the first `most` objects below the folder `prefix`, in key order."""

        async def work() -> list[ObjectStat]:
            found: list[ObjectStat] = []
            async with aclosing(self.storage.iterate(prefix, limit=min(most, 1000))) as items:
                async for item in items:
                    found.append(item)
                    if len(found) == most:
                        break
            return found

        return self._run(work)

    def held(self, found: ObjectStat, first: int, stop: int) -> dict[int, bytes]:
        """Return the blocks from number `first` up to `stop` that are already in memory, by number. Make no request."""
        numbers, name = range(first, stop), found.key.text
        with self._lock:
            return {number: data for number in numbers if (data := self._held.get((name, number))) is not None}

    def fetch(self, found: ObjectStat, first: int, stop: int) -> dict[int, bytes]:
        """Return the blocks from number `first` up to `stop`, by number.

        Concurrent requests of at most 4 MiB read the blocks. Raise `Conflict` if the object was replaced after its
        facts `found` were read.
        """
        end = min(stop * BLOCK, found.size)
        spans = list(pairwise([*range(first * BLOCK, end, _AT_ONCE), end]))
        parts = self._run(lambda: self.storage.get_ranges(found.key, spans, if_etag=found.etag))
        blocks = dict(enumerate((part[at : at + BLOCK] for part in parts for at in range(0, len(part), BLOCK)), first))
        with self._lock:
            for number, data in blocks.items():
                self._held.put((found.key.text, number), data, len(data))
        return blocks

    def close(self) -> None:
        """Close the storage. A second call does nothing."""
        if self._process == os.getpid():
            BACKGROUND.run(self.storage.close())
        self._process = None

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._process is None:
            raise InvalidInput("The storage is closed; open the URI again")
        if self._process != os.getpid():
            # The clients of buckets have threads, which a fork does not copy.
            raise InvalidInput("The storage was opened before a fork; open the URI again in the child process")
        return BACKGROUND.run(work())


_NEAR: Final = 4
"""Maximum number of blocks that a sequential read may skip: 256 KiB. To read them in vain is faster than a request."""
_LEAST: Final = 1
"""Minimum number of blocks to read ahead. The engine reads 64 KiB from the beginning of a message."""
_AHEAD: Final = 256
"""Maximum number of blocks to read ahead: 16 MiB."""


class ObjectSource(ClosedAtEnd):
    """A `RangeSource` over one object of a storage. Threads may share the source.

    A read requests the blocks of 64 KiB that are not in memory, and at least one block more. One request reads up to
    4 MiB. Sequential reads request as many blocks ahead as they have read so far, at most 16 MiB.
    """

    def __init__(self, reader: BlockingReader, found: ObjectStat, name: str, *, owner: bool = False) -> None:
        """Create the source; `name` is for error messages. With `owner`, `close` also closes the reader."""
        self.name = name
        self.size = found.size
        self._reader = reader
        self._found = found
        self._owner = owner
        self._end = 0  # number of the block that follows the last request
        self._run = 0  # blocks that the current sequence of requests has read

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`.

        Raise `CorruptModel` if the range exceeds the object. Raise `Conflict` if the object was replaced after it
        was opened.
        """
        if offset < 0 or length < 0:
            raise InvalidInput(f"Invalid range of {self.name}: offset {offset}, length {length}")
        if offset + length > self.size:
            raise CorruptModel(f"{self.name} has only {self.size} bytes, but {offset + length} are needed", offset)
        if not length:
            return b""
        first, stop = offset // BLOCK, -(-(offset + length) // BLOCK)
        have = self._reader.held(self._found, first, stop)
        missing = [number for number in range(first, stop) if number not in have]
        if missing:
            have |= self._reader.fetch(self._found, missing[0], self._until(missing[0], missing[-1] + 1, stop))
        data = b"".join([have[number] for number in range(first, stop)])
        return data[offset - first * BLOCK :][:length]

    def close(self) -> None:
        """Close the reader if this source owns it. A second call does nothing."""
        if self._owner:
            self._reader.close()

    def _until(self, first: int, end: int, stop: int) -> int:
        """Return the number of the block at which a request ends, including the blocks read ahead.

        The request begins at block `first` and must include the missing blocks up to `end`. The read needs the blocks
        up to `stop`.
        """
        # Concurrent threads may disturb this guess, which costs one more request or some unneeded bytes.
        if not self._end <= first <= self._end + _NEAR:
            self._run = 0
        ahead = min(max(_LEAST, self._run), _AHEAD) if end == stop else 0
        self._end = min(end + ahead, -(-self.size // BLOCK))
        self._run += self._end - first
        return self._end


MOST_FILES: Final = MAX_FILES
"""Maximum number of objects in a folder, which is the maximum number of files in a model."""


class ObjectFolder(FileSet):
    """The objects of a storage, by path. Reads of an object fail if the object was replaced after the first look-up.

    To look up a path takes one request. An iteration over all paths lists the storage; later look-ups need no request.
    """

    def __init__(self, reader: BlockingReader, uri: str) -> None:
        """Create the set of files; the folder's `uri` is for error messages."""
        self._reader = reader
        self._uri = uri.rstrip("/")
        self._found: dict[str, ObjectStat | None] = {}
        self._open: dict[str, ObjectSource] = {}
        self._listed = False

    def __getitem__(self, path: str) -> ObjectSource:
        if path not in self._open:
            found = self.find(path)
            if found is None:
                raise KeyError(path)
            self._open[path] = ObjectSource(self._reader, found, f"{self._uri}/{path}")
        return self._open[path]

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.find(path) is not None

    def __iter__(self) -> Iterator[str]:
        self._list()
        return iter(sorted(path for path, found in self._found.items() if found is not None))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find(self, path: str) -> ObjectStat | None:
        """Return the facts of the object at `path`, or None if there is no object or `path` is not a valid key."""
        if path not in self._found and not self._listed:
            try:
                key = ObjectKey(path)
            except InvalidInput:
                return None
            self._found[path] = self._reader.find(key)
        return self._found.get(path)

    def size_of(self, path: str) -> int:
        return self[path].size

    def close(self) -> None:
        """Close the storage. See `FileSet.close`."""
        self._reader.close()

    def _list(self) -> None:
        if self._listed:
            return
        listed = self._reader.listed(None, MOST_FILES + 1)
        if len(listed) > MOST_FILES:
            raise LimitExceeded(
                f"{self._uri} contains more than {MOST_FILES} objects: pass the folder or the file of a single model"
            )
        for found in listed:
            self._found.setdefault(found.key.text, found)
        self._listed = True


_ANYWHERE: Final = ("0.0.0.0/0", "::/0")
"""All networks: users who pass a URI themselves may connect to any address."""
_WITHOUT_OPTIONS: Final = ("file", "memory", "http", "https")
_OPTIONS: Final = "PROTOSLICE_STORAGE_OPTIONS"


def open_object(uri: str, options: Mapping[str, str] | None = None) -> ObjectSource:
    """Open the object at `uri` as a source. The `close` of the source also closes the storage.

    `options` are options of the storage backend; the default is the JSON in `PROTOSLICE_STORAGE_OPTIONS`. Raise
    `NotFound` if there is no such object.
    """
    parent, name = _split(uri)
    if name is None:
        raise InvalidInput(f"{uri} is a folder: pass the URI of an object")
    reader = _reader(parent, options)
    try:
        found = reader.find(ObjectKey(name))
        if found is None:
            raise NotFound(f"There is no object {uri}")
    except BaseException:
        reader.close()
        raise
    return ObjectSource(reader, found, uri, owner=True)


def open_folder(uri: str, options: Mapping[str, str] | None = None) -> tuple[ObjectFolder, str | None]:
    """Return a folder, and the name of the object in it that `uri` refers to, or None if `uri` refers to a folder.

    For an object, the returned folder is the folder that contains the object. Raise `NotFound` if there is neither an
    object nor a folder at `uri`. `options` are as in `open_object`.
    """
    parent, name = _split(uri)
    reader = _reader(parent, options)
    try:
        folder = ObjectFolder(reader, parent)
        if name is None or folder.find(name) is not None:
            return folder, name
        key = ObjectKey(name)
        if not reader.storage.abilities.listing or not reader.listed(key, 1):
            raise NotFound(f"There is no object {uri}")
        return ObjectFolder(BlockingReader(PrefixStorage(reader.storage, key)), uri), None
    except BaseException:
        reader.close()
        raise


def _split(uri: str) -> tuple[str, str | None]:
    """Split `uri` into the URI of a folder and the name of an object in it; the name is None for a folder's URI."""
    place = parse_root(uri)
    if not place.segments or uri.endswith("/"):
        return uri, None
    return uri.rpartition("/")[0], place.segments[-1]


def _reader(root: str, options: Mapping[str, str] | None) -> BlockingReader:
    place = parse_root(root)
    if options is None:
        options = {} if place.scheme in _WITHOUT_OPTIONS else _from_environment()
    if place.is_web and not options:
        return BlockingReader(open_source(root, networks=_ANYWHERE))
    return BlockingReader(open_storage(root, options))


def _from_environment() -> dict[str, str]:
    text = os.environ.get(_OPTIONS) or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidInput(f'Invalid {_OPTIONS}: use a JSON object of strings, such as {{"region": "eu-west-1"}}')
    return found


SourceLike = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | RangeSource


def as_source(x: SourceLike, storage_options: Mapping[str, str] | None = None) -> RangeSource:
    """Return a range source over a path, a URI, bytes or a seekable binary file.

    A range source is returned unchanged. `storage_options` are options of the storage backend of a URI; the default is
    the JSON in `PROTOSLICE_STORAGE_OPTIONS`. Raise `InvalidInput` for any other object and for an unknown URI scheme.
    """
    if is_uri(x):
        from protoslice.sources.opening import open_object  # loads asyncio and TLS, which local files do not need

        uri = cast(str, x)
        path = local_path(uri)
        return open_object(uri, storage_options) if path is None else FileSource(path)
    if isinstance(x, str | os.PathLike):
        return FileSource(x)
    if isinstance(x, bytes | bytearray | memoryview):
        return BytesSource(x)
    if (file := _as_file(x)) is not None:
        return FileObjectSource(file)
    if hasattr(x, "size") and hasattr(x, "read"):
        return cast(RangeSource, x)
    raise InvalidInput(
        f"Cannot open {type(x).__name__}: pass a path, a URI, bytes, a seekable binary file, or an "
        "object with `size` and `read(offset, length)`"
    )


def filename_of(source: SourceLike) -> str | None:
    """Return the file name of `source` without folders. Return None for bytes and other sources without a name."""
    name = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    return os.path.basename(os.fspath(name)) if isinstance(name, str | os.PathLike) else None


def opened_by(source: RangeSource, x: SourceLike) -> list[Closable]:
    """Return a list of the objects that the caller has to close after `source = as_source(x)`.

    The list contains `source` if `as_source` opened a file or a storage. Otherwise, the list is empty.
    """
    return [source] if source is not x and isinstance(source, Closable) else []


def files_at(
    name: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> tuple[FileSet, str | None]:
    """Return a folder, and the name of the file in it that `name` refers to, or None if `name` refers to a folder.

    `name` is a path or a URI. For a file, the returned folder is the folder that contains the file. Raise `NotFound` if
    there is neither a file nor a folder at a URI. A missing local file raises an error only when it is opened.
    """
    if is_uri(name):
        from protoslice.sources.opening import open_folder

        uri = os.fspath(name)
        path = local_path(uri)
        if path is None:
            return open_folder(uri, storage_options)
        name = path
    place = Path(name)
    return (Folder(place), None) if place.is_dir() else (Folder(place.parent, place.name), place.name)


def _as_file(x: object) -> BinaryIO | None:
    if isinstance(x, io.TextIOBase):
        raise InvalidInput("Open the file object in binary mode")
    seekable = getattr(x, "seekable", None)
    return cast(BinaryIO, x) if seekable is not None and seekable() else None


class Background:
    """An event loop in a thread of its process. The first call starts the loop, and any thread may call `run`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        # A forked child lacks the parent's thread, and may inherit a lock that no thread will release.
        os.register_at_fork(after_in_child=self._forget)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine `work` in the loop, and block until the coroutine has returned a result.

        An exception in the waiting thread, such as an interrupt, cancels the coroutine.
        """
        begun = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return begun.result()
        except BaseException:
            begun.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="protoslice-background", daemon=True).start()
            return self._loop

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop = None


BACKGROUND: Final = Background()
"""The event loop thread that all blocking calls of this process share."""

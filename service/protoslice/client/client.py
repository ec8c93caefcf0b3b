"""The client of a service: push, pull, look. Every byte it gives has been verified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from protoslice.client.download.cache import Cache
from protoslice.client.download.files import Download, Downloaded, Progress, afresh, read_whole, same_file
from protoslice.client.download.folders import PiecesByFile, each_file
from protoslice.client.download.remote import Remote
from protoslice.client.download.trust import trusted
from protoslice.client.http.connection import Connection, Params, Patience, path_of
from protoslice.client.http.json_facts import read_json
from protoslice.client.http.pages import each
from protoslice.client.tensors import Slice, as_array, as_strings, shape_of, slice_text
from protoslice.client.upload.bodies import Pushable
from protoslice.client.upload.push import Push, Pushed, PushOptions, Reported
from protoslice.defaults import CONNECTIONS
from protoslice.errors import Conflict, IntegrityError, NotFound, Unsupported
from protoslice.facts import ChunkEntry, File, Node, Piece, Removed, Restored, Schema, Store, Tag, TensorEntry

__all__ = ["Client", "ClientOptions", "merge_params"]


class Parsing(Protocol):
    """A message of the protobuf runtime that is to be filled."""

    def ParseFromString(self, data: bytes, /) -> object:  # noqa: N802 - the runtime's name
        """Take what `data` says."""


M = TypeVar("M", bound=Parsing)
T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """Options of a client."""

    headers: Mapping[str, str]
    """Sent with every request: an Authorization, for example."""
    timeout_seconds: float
    """The longest silence of the service; 30 unless given."""
    attempts: int
    """How often something is tried that does not get on; 6 unless given."""
    backoff_seconds: float
    """How long to wait before the second try, doubled for each further one; 0.1 unless given."""
    parallel: int
    """Answers at the same time in a large download; 4 unless given."""
    cache: Cache | str | os.PathLike[str] | None
    """Where pieces of models are kept, so that another version is fetched in part; nowhere unless given."""


@dataclass(frozen=True, slots=True)
class _TagsTaken:
    """Tags of a restored store that point at other stores by now."""

    tags_taken: tuple[str, ...]


class Client:
    """A service at `url`. Threads may share it; close it, or use it as a context manager.

    `ref` is a store's id, 12 or more digits of one, or a tag. What fails raises the errors of `protoslice.errors`.
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self._parallel = max(1, options.get("parallel", CONNECTIONS))
        self._patience = Patience(
            attempts=max(1, options.get("attempts", 6)), first_seconds=options.get("backoff_seconds", 0.1)
        )
        cache = options.get("cache")
        self.cache = Cache(cache) if isinstance(cache, str | os.PathLike) else cache
        """Where pieces are kept; none, or a `Cache`."""
        self._connection = Connection(
            url,
            headers=options.get("headers"),
            timeout_seconds=options.get("timeout_seconds", 30.0),
            patience=self._patience,
        )

    @property
    def url(self) -> str:
        """URL of the service."""
        return self._connection.url

    # Stores

    def push(self, what: Pushable, **options: Unpack[PushOptions]) -> Pushed:
        """Make a store of a file, a folder, bytes, a message, or pieces of bytes.

        The service compares every file with its sha-256 before the store can be seen. What can be read again is sent
        again when the connection breaks. A large file goes on where a push of it broke off, be it of another process.
        """
        return Push(self._connection, what, options).run()

    def register(self, files: Mapping[str, str], **options: Unpack[PushOptions]) -> Pushed:
        """Make a store over objects that already lie in storage the operator allows: path to URI. Nothing is copied."""
        wanted: dict[str, Any] = {"files": dict(files), "tags": list(options.get("tags", ()))}
        wanted |= {name: options.get(name) for name in ("type", "root", "min_chunk", "max_chunk")}
        wanted |= {"report": True, "strict": options.get("strict", False)}
        answer = self._connection.call("POST", "/v1/stores/register", json=wanted, slow=True)
        said = answer.json()
        return Pushed(read_json(Store, said), answer.status == 201, 0, 0, read_json(Reported, said).report)

    def stores(self, *, tag: str | None = None, type: str | None = None) -> Iterator[Store]:
        """All stores, newest first: those with a tag that begins so, those of a type."""
        return self._each(Store, "/v1/stores", _params(tag=tag, type=type))

    def store(self, ref: str) -> Store:
        """The store. Its id is computed from what is listed of it, unless its files were registered in place."""
        return trusted(read_json(Store, self._connection.call("GET", path_of("v1", "stores", ref)).json()), ref)

    def remove(self, id: str) -> Removed:
        """Remove the store of an id, or of the beginning of one, and the tags that point at it.

        A tag is a `Conflict`: `untag` removes it, and `store` tells the id. `restore` takes a removal back for a while.
        """
        return read_json(Removed, self._connection.call("DELETE", path_of("v1", "stores", id), again=False).json())

    def restore(self, id: str) -> Restored:
        """Take the removal of the store of a whole id back, with those of its tags that are free.

        `NotFound` where there is nothing to restore; a `Conflict` where what it needs has been collected.
        """
        said = self._connection.call("POST", path_of("v1", "stores", id, "restore"), again=False).json()
        return Restored(read_json(Store, said), read_json(_TagsTaken, said).tags_taken)

    # Views

    def chunks(self, ref: str) -> Iterator[ChunkEntry]:
        """The chunks of a store with their digests, for which the service reads all of the store the first time."""
        for chunk in self._each(ChunkEntry, self._view(ref, "chunks"), slow=True):
            if chunk.sha256 is None:
                raise IntegrityError(f"the service answered with chunk {chunk.index} without its digest")
            yield chunk

    def chunk(self, ref: str, chunk: int | ChunkEntry) -> bytes:
        """A chunk: a serialized message, or raw bytes. Given as `chunks` gave it, it may come from the cache."""
        number = chunk if isinstance(chunk, int) else chunk.index
        if isinstance(chunk, int) or (sha256 := chunk.sha256) is None:
            return self._whole(lambda: self.source(ref, f"chunks/{number}"))
        kept = self.cache.get(sha256, chunk.size) if self.cache else None
        if kept is not None:
            return kept
        path = self._view(ref, "chunks", str(number))
        data = self._whole(lambda: Remote(self._connection, path, size=chunk.size, sha256=sha256))
        if self.cache is not None:
            self.cache.put(sha256, data)
        return data

    def pieces(self, ref: str) -> Iterator[Piece]:
        """The pieces that cover every file of a store, with their digests. The first time, all of it is read there."""
        return self._each(Piece, self._view(ref, "pieces"), slow=True)

    def tree(self, ref: str, path: str = "", *, depth: int = 1) -> Iterator[Node]:
        """What lies directly below `path`; with a depth beyond 1 each with what lies below it in turn."""
        return self._each(Node, self._view(ref, "tree"), _params(path=path, depth=str(depth)))

    def metadata(self, ref: str) -> bytes:
        """The serialized `ChunkMetadata` of the store."""
        return self._whole(lambda: self.source(ref, "metadata"))

    @overload
    def merge(
        self, ref: str, path: str = "", *, fields: Sequence[str] = (), omit_larger_than: int | str | None = None
    ) -> bytes: ...
    @overload
    def merge(
        self,
        ref: str,
        path: str = "",
        *,
        fields: Sequence[str] = (),
        omit_larger_than: int | str | None = None,
        into: M,
    ) -> M: ...
    def merge(
        self,
        ref: str,
        path: str = "",
        *,
        fields: Sequence[str] = (),
        omit_larger_than: int | str | None = None,
        into: Any = None,
    ) -> Any:
        """What stands at `path`: a message serialized, or parsed `into` one; the content of bytes, the text of others.

        `fields` keep only these paths below it; `omit_larger_than` leaves out every field beyond that size.
        """
        params = merge_params(path, fields, omit_larger_than)
        data = self._whole(lambda: self.source(ref, "merge", params))
        if into is None:
            return data
        into.ParseFromString(data)
        return into

    def tensors(self, ref: str, *, name: str | None = None, dtype: str | None = None) -> Iterator[TensorEntry]:
        """The tensors of a store."""
        return self._each(TensorEntry, self._view(ref, "tensors"), _params(name=name, dtype=dtype))

    def tensor(self, ref: str, name: str, slice: Slice | None = None) -> Any:
        """A tensor, or a slice of it (`"0:128,:"`, or as numpy is indexed), as a numpy array.

        `name` may be the address. A tensor of strings is an array of `bytes`.
        """
        params = _params(slice=None if slice is None else slice_text(slice))
        make = lambda: self.source(ref, f"tensors/{name}", [*params, ("format", "raw")])  # noqa: E731
        try:
            return afresh(make, self._array)
        except Unsupported:
            strings = self._strings(ref, name, params)
            if strings is None:
                raise
            return strings

    def source(self, ref: str, view: str, params: Params = (), *, lean: bool = False) -> Remote:
        """A view as a source of verified range reads, which `protoslice.open` takes too.

        `view` is what follows the store in a URL: `files/model.onnx`, `chunks/3`, `merge`, `cpb`, `safetensors`.
        A `lean` one fetches nothing but what is read; others begin with the first mebibyte.
        """
        kind, _, rest = view.partition("/")
        steps = rest.split("/") if kind == "files" else [rest] if rest else []
        return Remote(self._connection, self._view(ref, kind, *steps), params, lean=lean)

    def download(
        self,
        ref: str,
        target: str | os.PathLike[str],
        *,
        view: str | None = None,
        params: Params = (),
        progress: Progress | None = None,
    ) -> list[Downloaded]:
        """Write a view to the file `target`; without one, the files of the store.

        Of several files, `target` is the folder they go to; of one, the file, or the folder that is there. A file that
        is there already, and is the same, is not fetched. What broke off goes on where it was when it is asked for
        again. With a cache, pieces of other versions are not fetched again.
        """
        if view is not None and not view.startswith("files/"):
            return [self._download(lambda: self.source(ref, view, params), Path(target), progress)]
        store = self.store(ref)
        pieces = PiecesByFile(lambda: self.pieces(store.id))
        if view is not None:
            return [self._download_file(store, _named(store, view), Path(target), pieces, progress)]
        folder = Path(target)
        alone = len(store.files) == 1 and not folder.is_dir()
        places = {file.path: folder if alone else _inside(folder, file.path) for file in store.files}

        def fetch(file: File, progress: Progress | None) -> Downloaded:
            return self._download_file(store, file, places[file.path], pieces, progress)

        return each_file(store.files, fetch, self._parallel, progress)

    # Tags and schemas

    def tags(self) -> Iterator[Tag]:
        """All tags, by name."""
        return self._each(Tag, "/v1/tags")

    def tag(self, name: str, ref: str, *, create: bool = False, expected: str | None = None) -> Tag:
        """Point a tag at a store. With `create`, only if it is new; with `expected`, only if it points at that store.

        A `Conflict` says that somebody was first.
        """
        path = path_of("v1", "tags", name)
        headers = {"if-none-match": "*"} if create else {}
        if expected is not None:
            current = self._connection.call("GET", path)
            if read_json(Tag, current.json()).store != expected:
                raise Conflict(f"the tag {name!r} points at another store")
            headers["if-match"] = current.headers.get("etag", "")
        answer = self._connection.call("PUT", path, json={"store": ref}, headers=headers, again=not headers)
        return read_json(Tag, answer.json())

    def untag(self, name: str) -> None:
        """Remove a tag; what it points at stays."""
        self._connection.call("DELETE", path_of("v1", "tags", name), again=False)

    def schemas(self) -> Iterator[Schema]:
        """All uploaded descriptor sets, by name."""
        return self._each(Schema, "/v1/schemas")

    def schema(self, name: str) -> bytes:
        """A serialized `FileDescriptorSet`."""
        return self._connection.call("GET", path_of("v1", "schemas", name)).body

    def put_schema(self, name: str, descriptor_set: bytes) -> Schema:
        """Keep a serialized `FileDescriptorSet`, so that its message types can be named."""
        headers = {"content-type": "application/protobuf"}
        answer = self._connection.call("PUT", path_of("v1", "schemas", name), body=descriptor_set, headers=headers)
        return read_json(Schema, answer.json())

    def delete_schema(self, name: str) -> None:
        """Remove a descriptor set; stores that were made with it keep what they need."""
        self._connection.call("DELETE", path_of("v1", "schemas", name), again=False)

    # The rest

    def close(self) -> None:
        """Give back the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _each(self, kind: type[T], path: str, params: Params = (), *, slow: bool = False) -> Iterator[T]:
        return each(self._connection, kind, path, params, slow=slow)

    def _view(self, ref: str, *steps: str) -> str:
        return path_of("v1", "stores", ref, *steps)

    def _whole(self, make: Callable[[], Remote]) -> bytes:
        """All bytes of a view, verified."""
        return afresh(make, lambda remote: read_whole(remote, self._parallel))

    def _array(self, remote: Remote) -> Any:
        data, headers = read_whole(remote, self._parallel), remote.facts.headers
        return as_array(data, headers.get("x-tensor-dtype", ""), shape_of(headers.get("x-tensor-shape", "")))

    def _strings(self, ref: str, name: str, params: Params) -> Any:
        """The tensor, if it is one of strings, which come as JSON alone; else none."""
        try:
            path = self._view(ref, "tensors", name)
            said = self._connection.call("GET", path, params=[*params, ("format", "json")]).json()
        except Unsupported:
            return None
        return as_strings(said) if isinstance(said, dict) and said.get("dtype") == "STRING" else None

    def _download(
        self,
        make: Callable[[], Remote],
        target: Path,
        progress: Progress | None,
        pieces: Callable[[], Sequence[Piece]] | None = None,
    ) -> Downloaded:
        return afresh(
            make,
            lambda remote: Download(
                remote=remote,
                target=target,
                parallel=self._parallel,
                patience=self._patience,
                progress=progress,
                cache=self.cache,
                pieces=pieces,
            ).run(),
        )

    def _download_file(
        self, store: Store, file: File, target: Path, pieces: PiecesByFile, progress: Progress | None
    ) -> Downloaded:
        if same_file(target, file.size, file.sha256):
            if progress is not None:
                progress(file.size, file.size)
            return Downloaded(target, file.size, 0)
        path = self._view(store.id, "files", *file.path.split("/"))
        lean = self.cache is not None
        return self._download(
            lambda: Remote(self._connection, path, size=file.size, sha256=file.sha256, lean=lean),
            target,
            progress,
            lambda: pieces.of(file.path),
        )


def merge_params(path: str, fields: Sequence[str], omit_larger_than: int | str | None) -> Params:
    """The query of a merge."""
    return [
        *_params(path=path or None, omit_larger_than=None if omit_larger_than is None else str(omit_larger_than)),
        *(("fields", each) for each in fields),
    ]


def _params(**given: str | None) -> list[tuple[str, str]]:
    return [(name, value) for name, value in given.items() if value is not None]


def _named(store: Store, view: str) -> File:
    path = view.removeprefix("files/")
    for file in store.files:
        if file.path == path:
            return file
    raise NotFound(f"store {store.id} has no file {path!r}")


def _inside(folder: Path, path: str) -> Path:
    """Where a file of a store goes below `folder`; a service must not write anywhere else."""
    steps = path.split("/")
    if any(step in {"", ".", ".."} or "\\" in step or "\0" in step for step in steps):
        raise IntegrityError(f"the service lists a file at {path!r}, which is no place below a folder")
    return folder.joinpath(*steps)

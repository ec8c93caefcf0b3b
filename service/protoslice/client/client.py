"""Client of a service: push, pull, inspect. All bytes it returns have been verified."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, overload
from urllib.parse import quote, urlencode

from protoslice.client.administration import Administration
from protoslice.client.download.cache import Cache
from protoslice.client.download.files import Downloaded, Progress, read_whole, retry_if_changed
from protoslice.client.download.remote import Remote
from protoslice.client.download.stores import (
    ONNX,
    ONNX_FILES,
    SAFETENSORS,
    SHARD_INDEX,
    WHOLE_SHARD,
    DownloadOptions,
    PiecesByFile,
    StoreFiles,
    download_view,
    folder_of,
    is_folder,
    is_shard,
    target_of,
)
from protoslice.client.http.connection import Connection, Params, RetryPolicy, given_params, url_path
from protoslice.client.http.decoding import decode, verified_store
from protoslice.client.http.digests import digest_of
from protoslice.client.options import ClientOptions, GraphOptions, StoreSearch, search_params
from protoslice.client.parts import PartReader, StorePart
from protoslice.client.records import RemoteRecords
from protoslice.client.upload.bodies import Pushable
from protoslice.client.upload.push import Push, Pushed, PushOptions, RegisterOptions, Reported
from protoslice.defaults import CONNECTIONS
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, Unsupported, named_options
from protoslice.facts import (
    ChunkEntry,
    Difference,
    ModelReport,
    Neighbourhood,
    Node,
    Piece,
    RecordsSummary,
    Removed,
    RepositorySummary,
    RepositoryVersion,
    Restored,
    Schema,
    Signature,
    SignedUrl,
    Store,
    Tag,
    TensorDelta,
    TensorEntry,
    TensorStatistics,
)
from protoslice.sources.source import ClosedAtEnd
from protoslice.tensors.arrays import Slice, as_array, as_strings, require_numpy, shape_of, slice_text

if TYPE_CHECKING:
    import numpy as np


class Parsing(Protocol):
    """Message of the protobuf runtime that can be filled from bytes."""

    def ParseFromString(self, data: bytes, /) -> object:  # noqa: N802 - the runtime's name
        """Replace the content of the message by the serialized message `data`."""


M = TypeVar("M", bound=Parsing)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _TagsTaken:
    """Tags of a restored store that point at other stores by now."""

    tags_taken: tuple[str, ...]


@named_options
class Client(Administration, ClosedAtEnd):
    """Client of the service at `url`.

    Threads may share a client. Close the client, or use it as a context manager. `ref` is a store's id, 12 or more
    digits of one, or a tag. Failures raise the errors of `protoslice.errors`.
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self._options = options
        self._parallel = max(1, options.get("parallel", CONNECTIONS))
        self._retries = RetryPolicy(
            attempts=max(1, options.get("attempts", 6)), first_seconds=options.get("backoff_seconds", 0.1)
        )
        cache = options.get("cache")
        self.cache = Cache(cache) if isinstance(cache, str | os.PathLike) else cache
        """The `Cache` of pieces, or None."""
        self._connection = Connection(
            url,
            headers=_headers(options),
            timeout_seconds=options.get("timeout_seconds", 30.0),
            retries=self._retries,
        )

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __reduce__(self) -> tuple[Callable[[], Client], tuple[()]]:
        """Pickled as the way to make it again; options go along, a token too."""
        return partial(type(self), self.url, **self._options), ()

    @property
    def url(self) -> str:
        """URL of the service."""
        return self._connection.url

    # Stores

    def push(self, what: Pushable, **options: Unpack[PushOptions]) -> Pushed:
        """Make a store of a file, a folder, bytes, a message, or pieces of bytes.

        The service compares every file with its SHA-256 before the store becomes visible. Content that can be read
        again is sent again when the connection breaks. A large file resumes where an earlier push of it broke off, even
        one of another process.

        Args:
            what: Path of a file or folder, bytes, a protobuf message, or an iterable of bytes or messages.
            **options: Tags, type, root and other members of `PushOptions`.

        Returns:
            The new store, or the store that already had this content, with the bytes sent and a report on the model.

        Examples:
            >>> pushed = client.push("model.onnx", tags=["demo:1"])
            >>> pushed.store.tags
            ('demo:1',)
        """
        return Push(self._connection, what, options).run()

    def register(self, files: Mapping[str, str], **options: Unpack[RegisterOptions]) -> Pushed:
        """Make a store over objects in storage that the operator allows, by path and URI; copies nothing."""
        wanted: dict[str, Any] = {"files": dict(files), "tags": list(options.get("tags", ()))}
        wanted |= {name: options.get(name) for name in ("type", "root", "min_chunk", "max_chunk", "plan", "rules")}
        wanted |= {"report": True, "strict": options.get("strict", False)}
        answer = self._connection.call("POST", "/v1/stores/register", json=wanted, slow=True)
        said = answer.json()
        return Pushed(decode(Store, said), answer.status == 201, 0, 0, decode(Reported, said).report)

    def stores(self, **search: Unpack[StoreSearch]) -> Iterator[Store]:
        """Return stores, newest first: all, or those that a search finds.

        Pages are requested as the iterator reaches them.

        Args:
            **search: Conditions and order; see `StoreSearch`. A store has to meet all conditions.

        Returns:
            An iterator of stores.

        Raises:
            InvalidInput: A time is not a `datetime`, or a size is not one.

        Examples:
            >>> [store.tags for store in client.stores(name="demo", max_size="1GiB", sort="-size")]
            [('demo:1',)]
        """
        return self._each(Store, "/v1/stores", search_params(search))

    def store(self, ref: str, *, names: bool = True) -> Store:
        """Return the facts of a store.

        The id is checked against the listed files and policy, unless files were registered in place.

        Args:
            ref: Id, 12 or more digits of one, or a tag.
            names: Whether to look for names in registries too; False is faster.

        Returns:
            The store's id, type, files, size in bytes, and tags.

        Raises:
            NotFound: There is no such store.
            IntegrityError: The id does not fit the files and policy.

        Examples:
            >>> client.store("demo:1").type
            'onnx.ModelProto'
        """
        params = given_params(names=None if names else "false")
        answer = self._connection.call("GET", url_path("v1", "stores", ref), params=params)
        return verified_store(decode(Store, answer.json()), ref)

    def repositories(self, prefix: str = "") -> Iterator[RepositorySummary]:
        """Repositories of model registries whose names begin with `prefix`, with the stores of their heads.

        Those of the hub come first, then those of OCI clients, then folders of MLflow's artifacts; each by name.
        """
        return self._each(RepositorySummary, "/v1/repositories", given_params(prefix=prefix or None))

    def versions(self, repository: str) -> Iterator[RepositoryVersion]:
        """Branches and tags of a repository that have files; `NotFound` when there is none of that name."""
        return self._each(RepositoryVersion, url_path("v1", "repositories", *repository.split("/")))

    def remove(self, id: str, *, force: Iterable[str] = ()) -> Removed:
        """Remove the store with this id, or with an id that begins so.

        `StillNamed` if tags, repositories, OCI artifacts or MLflow folders name the store that `force` does not list.
        Tags go along with the store; names in registries stay, and break. `Conflict` for a tag in place of an id: use
        `untag`, or `store` for the id. `restore` reverts a removal for a while.
        """
        params = [("force", name) for name in force]
        answer = self._connection.call("DELETE", url_path("v1", "stores", id), params=params, again=False)
        return decode(Removed, answer.json())

    def restore(self, id: str) -> Restored:
        """Revert the removal of the store with this id, with an id that begins so, or that had this tag.

        Its tags come back too, except those that point at other stores by now. `NotFound` when there is nothing to
        restore; `Conflict` when needed objects have been collected.
        """
        said = self._connection.call("POST", url_path("v1", "stores", id, "restore"), again=False).json()
        return Restored(decode(Store, said), decode(_TagsTaken, said).tags_taken)

    def describe(self, ref: str, description: str) -> Store:
        """Set the description of a store; an empty one removes it."""
        body = {"description": description}
        return decode(Store, self._connection.call("PATCH", url_path("v1", "stores", ref), json=body).json())

    # Views

    def chunks(self, ref: str) -> Iterator[ChunkEntry]:
        """Return the chunks of a store with their digests; the first request makes the service read the whole store."""
        for chunk in self._each(ChunkEntry, self._view(ref, "chunks"), slow=True):
            if chunk.sha256 is None:
                raise IntegrityError(f"The service listed chunk {chunk.index} without its digest")
            yield chunk

    def chunk(self, ref: str, chunk: int | ChunkEntry) -> bytes:
        """Return the content of a chunk: a serialized message or raw bytes; a `ChunkEntry` may come from the cache."""
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
        """Return pieces that cover all files of a store, with digests; the service reads the whole store at first."""
        return self._each(Piece, self._view(ref, "pieces"), slow=True)

    def tree(
        self, ref: str, path: str = "", *, depth: int = 1, file: str | None = None, type: str | None = None
    ) -> Iterator[Node]:
        """Return the nodes directly below `path`; with a `depth` beyond 1, each with its own children.

        `file` is a stream of records or the index of a bundle in place of the root; `type` that of the records.
        """
        params = given_params(path=path, depth=str(depth), file=file, type=type)
        return self._each(Node, self._view(ref, "tree"), params)

    def metadata(self, ref: str) -> bytes:
        """Return the serialized `ChunkMetadata` of the store."""
        return self._whole(lambda: self.source(ref, "metadata"))

    @overload
    def merge(
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
    def merge(
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
    def merge(
        self,
        ref: str,
        path: str = "",
        *,
        fields: Sequence[str] = (),
        omit_larger_than: int | str | None = None,
        omit: Sequence[str] = (),
        file: str | None = None,
        type: str | None = None,
        into: Any = None,
    ) -> Any:
        """Return the value at `path`: a message serialized, or parsed `into` one; the bytes or text of other values.

        Args:
            ref: Id, 12 or more digits of one, or a tag.
            path: Path of the value, such as `graph.node[3]`; the whole root if empty.
            fields: Paths below `path` to keep; all if empty.
            omit_larger_than: Size in bytes, or text such as `"1MiB"`; larger fields are left out.
            omit: Paths below `path` to leave out.
            file: Stream of records or index of a bundle to read in place of the root.
            type: Message type of the records in `file`.
            into: Protobuf message to parse the bytes into.

        Returns:
            The bytes, or `into`.

        Raises:
            NotFound: There is no such store or path.

        Examples:
            >>> node = client.merge("demo:1", "graph.node[1]")
            >>> client.merge("demo:1", "graph.node[1].op_type")
            b'Mul'
        """
        params = [*merge_params(path, fields, omit_larger_than, omit), *given_params(file=file, type=type)]
        data = self._whole(lambda: self.source(ref, "merge", params))
        if into is None:
            return data
        into.ParseFromString(data)
        return into

    def parts(self, ref: str, views: Iterable[str]) -> Generator[StorePart, None, None]:
        """Return many views of a store in one response, in their order; read each before the next.

        A view is a path below the store with its query, percent-encoded: `chunks/3`, `tensors/w?slice=0:4`,
        `merge?path=graph.node[3]`, `files/config.json`. At most 1 000 at a time.
        """
        wanted = list(views)
        body = dumps({"parts": [{"view": view} for view in wanted]}).encode()
        headers = {"content-type": "application/json", "content-digest": digest_of(body)}
        with self._connection.stream("POST", self._view(ref, "parts"), content=body, headers=headers) as answer:
            reader = PartReader(answer.headers.get("content-type", ""), answer.iter_raw())
            yield from reader.parts(wanted)

    def tensors(
        self,
        ref: str,
        *,
        name: str | None = None,
        dtype: str | None = None,
        sort: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> Iterator[TensorEntry]:
        """Return the tensors of a store, or of its meta graph with exactly `tags`.

        Args:
            ref: Id, 12 or more digits of one, or a tag.
            name: Name to look for; `*` stands for any characters.
            dtype: Data type to look for.
            sort: `name`, `dtype`, `shape` or `size`, with `-` before it for descending.
            tags: Tags of a meta graph of a SavedModel.

        Returns:
            An iterator of names, data types, shapes and sizes in bytes, without elements.

        Raises:
            NotFound: There is no such store.

        Examples:
            >>> [tensor.name for tensor in client.tensors("demo:1", name="head.*")]
            ['head.weight']
        """
        params = given_params(name=name, dtype=dtype, sort=sort, tags=_comma(tags))
        return self._each(TensorEntry, self._view(ref, "tensors"), params)

    def summary(self, ref: str) -> ModelReport:
        """Return tensors, elements and bytes by data type, missing files and duplicate names of a store."""
        return decode(ModelReport, self._connection.call("GET", self._view(ref, "summary"), slow=True).json())

    def signatures(self, ref: str, *, tags: Sequence[str] | None = None) -> Iterator[Signature]:
        """Return the signatures of a SavedModel, or of its meta graph with exactly `tags`; one of other models."""
        return self._each(Signature, self._view(ref, "signatures"), given_params(tags=_comma(tags)))

    def graph(self, ref: str, around: str | None = None, **options: Unpack[GraphOptions]) -> Neighbourhood:
        """Return nodes within some hops of the one with the path or name `around`; without one, some to begin with."""
        params = given_params(around=around, **{name: str(value) for name, value in options.items()})
        said = self._connection.call("GET", self._view(ref, "graph"), params=params)
        return decode(Neighbourhood, said.json())

    def tensor(
        self,
        ref: str,
        name: str,
        slice: Slice | None = None,
        *,
        tags: Sequence[str] | None = None,
        dequantize: bool = False,
    ) -> np.ndarray[Any, Any]:
        """Return a tensor, or a slice of it, as a numpy array.

        Args:
            ref: Id, 12 or more digits of one, or a tag.
            name: Name or address of the tensor.
            slice: Text such as `"0:128,:"`, or a numpy index; the whole tensor if None.
            tags: Tags of the meta graph of a SavedModel in which to look for the name.
            dequantize: Return a quantized tensor as floats of 32 bits, not as rows of bytes.

        Returns:
            The elements; an array of `bytes` for a tensor of strings.

        Raises:
            NotFound: There is no such store or tensor.
            Unsupported: numpy is not installed, or ml_dtypes is not and the data type needs it.

        Examples:
            >>> client.tensor("demo:1", "head.weight", "0:4").shape
            (4,)
        """
        require_numpy()
        params = given_params(
            slice=None if slice is None else slice_text(slice),
            tags=_comma(tags),
            dequantize="true" if dequantize else None,
        )
        make = lambda: self.source(ref, f"tensors/{name}", [*params, ("format", "raw")])  # noqa: E731
        try:
            return retry_if_changed(make, self._array)
        except Unsupported as error:
            # Only the service knows that a tensor has strings; an error found here says what is missing here.
            strings = None if error.request_id is None else self._strings(ref, name, params)
            if strings is None:
                raise
            return strings

    def stats(
        self,
        ref: str,
        name: str,
        slice: Slice | None = None,
        *,
        sample: int | None = None,
        tags: Sequence[str] | None = None,
    ) -> TensorStatistics:
        """Extremes, mean, deviation, zeros and histogram of a tensor or of a slice, worked out by the service.

        `name` and `tags` are as for `tensor`. They are of all elements up to `sample` (16 777 216 unless given, 0 for
        all), else of a spread sample.
        """
        params = given_params(
            slice=None if slice is None else slice_text(slice),
            sample=None if sample is None else str(sample),
            format="stats",
            tags=_comma(tags),
        )
        said = self._connection.call("GET", self._view(ref, "tensors", name), params=params, slow=True)
        return decode(TensorStatistics, said.json())

    def diff(self, before: str, after: str) -> Iterator[Difference]:
        """Return the differences of the store `after` from the store `before`, compared by the service.

        Args:
            before: Id, 12 or more digits of one, or a tag of the earlier store.
            after: The same of the later store.

        Returns:
            An iterator of at most 10 000 differences.

        Raises:
            NotFound: There is no such store.

        Examples:
            >>> list(client.diff("demo:1", "demo:1"))
            []
        """
        return self._each(Difference, self._view(after, "diff"), given_params(before=before), slow=True)

    def tensor_delta(
        self, before: str, after: str, name: str, *, was: str | None = None, sample: int | None = None
    ) -> TensorDelta:
        """Distances of the elements of the tensor `was` of `before` and the tensor `name` of `after`.

        `was` is the same name unless given. Elements are compared up to `sample` (16 777 216 unless given, 0 for all),
        else a spread sample of them.
        """
        params = given_params(before=before, was=was, sample=None if sample is None else str(sample))
        said = self._connection.call("GET", self._view(after, "diff", name), params=params, slow=True)
        return decode(TensorDelta, said.json())

    def records(
        self, ref: str, *, file: str | None = None, framing: str | None = None, type: str | None = None
    ) -> RemoteRecords:
        """Records of a stream as a sequence, such as Grain and PyTorch take for data.

        `file` names the stream in a store of several files; `framing` and `type` say what the service cannot tell.
        """
        id, params = self.store(ref, names=False).id, given_params(file=file, framing=framing, type=type)
        said = self._connection.call("GET", self._view(id, "records"), params=[*params, ("summary", "")], slow=True)

        def ask(more: Params) -> bytes:
            return self._whole(lambda: self.source(id, "records", [*params, *more]))

        again = partial(_records_of, self.url, self._options, id, file, framing, type)
        return RemoteRecords(decode(RecordsSummary, said.json()), ask, again, self._parallel)

    def source(self, ref: str, view: str, params: Params = (), *, lean: bool = False) -> Remote:
        """View as a source of verified range reads; `protoslice.open` takes it too.

        `view` is the URL path behind the store: `files/model.onnx`, `chunks/3`, `merge`, `cpb`, `safetensors`. A `lean`
        source fetches only the bytes that are read; others begin with the first mebibyte.
        """
        return Remote(self._connection, self._view(ref, *_steps(view)), params, lean=lean, parallel=self._parallel)

    def download(
        self,
        ref: str,
        target: str | os.PathLike[str],
        *,
        view: str | None = None,
        params: Params = (),
        progress: Progress | None = None,
    ) -> list[Downloaded]:
        """Write a view to the file `target`; without `view`, write the files of the store.

        An existing file with the same content is not fetched. A download that broke off resumes where it was. With a
        cache, pieces of other versions are not fetched again.

        The view `onnx` writes `weights.bin` and `model.onnx` into the folder `target`; the view `safetensors` with the
        parameter `shards` writes files with at most so many bytes of elements, and their index.

        Args:
            ref: Id, 12 or more digits of one, or a tag.
            target: For several files, a folder; for one, the file, or the folder for it: an existing one, or a text
                that ends with a slash.
            view: URL path behind the store, such as `files/model.onnx` or `safetensors`.
            params: Query parameters of the view, as pairs.
            progress: Function that is called as bytes arrive.

        Returns:
            What was written, one item for each file.

        Raises:
            NotFound: There is no such store or view.

        Examples:
            >>> files = client.download("demo:1", "here/")
            >>> len(files)
            1
        """
        terms = DownloadOptions(self._retries, self._parallel, self.cache, progress)
        if view is not None and is_folder(view, params):
            id = self.store(ref, names=False).id  # a tag may move between two files
            made, names = folder_of(target), ONNX_FILES if view == ONNX else self._shards(id, params)
            opens = {name: partial(self.source, id, f"{view}/{name}", params) for name in names}
            return [download_view(opening, made / name, terms) for name, opening in opens.items()]
        target = target_of(target, view)
        if view is not None and not view.startswith("files/"):
            return [download_view(lambda: self.source(ref, view, params), target, terms)]
        store = self.store(ref, names=False)
        files = StoreFiles(self._connection, store, PiecesByFile(lambda: self.pieces(store.id)), terms)
        return files.all(target) if view is None else [files.one(view.removeprefix("files/"), target)]

    # Tags and schemas

    def tags(self) -> Iterator[Tag]:
        """Return all tags, by name."""
        return self._each(Tag, "/v1/tags")

    def tag(self, name: str, ref: str, *, create: bool = False, expected: str | None = None) -> Tag:
        """Point a tag at a store.

        Args:
            name: The tag.
            ref: Id, 12 or more digits of one, or another tag.
            create: Refuse a tag that exists.
            expected: Id of the store that the tag has to point at before.

        Returns:
            The tag as it is now.

        Raises:
            Changed: The tag exists already (`create`), or another client was first.
            Conflict: The tag does not point at `expected`.
            NotFound: There is no such store, or no such tag while `expected` is given.

        Examples:
            >>> client.tag("demo:latest", "demo:1").name
            'demo:latest'
        """
        path = url_path("v1", "tags", name)
        headers = {"if-none-match": "*"} if create else {}
        if expected is not None:
            current = self._connection.call("GET", path)
            if decode(Tag, current.json()).store != expected:
                raise Conflict(f"The tag {name!r} does not point at the expected store")
            headers["if-match"] = current.headers.get("etag", "")
        answer = self._connection.call("PUT", path, json={"store": ref}, headers=headers, again=not headers)
        return decode(Tag, answer.json())

    def untag(self, name: str) -> None:
        """Remove a tag; its store stays."""
        self._connection.call("DELETE", url_path("v1", "tags", name), again=False)

    def sign(self, ref: str, view: str = "", params: Params = (), *, expires_seconds: int = 3600) -> str:
        """Return a URL that needs no token and shows the `view` to everyone, until the URL or the token expires.

        `view` and `params` are as for `source`; an empty one is the store itself. `Unsupported` for an open service,
        whose URLs (`url_of`) need no signature.
        """
        path = self._path(ref, view, params)
        said = self._connection.call("POST", "/v1/sign", json={"path": path, "expires_seconds": expires_seconds})
        return decode(SignedUrl, said.json()).url

    def url_of(self, ref: str, view: str = "", params: Params = ()) -> str:
        """Return the URL of a `view`, or of the store; `view` and `params` are as for `source`."""
        return f"{self.url}{self._path(ref, view, params)}"

    def schemas(self) -> Iterator[Schema]:
        """Return all uploaded descriptor sets, by name."""
        return self._each(Schema, "/v1/schemas")

    def schema(self, name: str) -> bytes:
        """Return a serialized `FileDescriptorSet`."""
        return self._connection.call("GET", url_path("v1", "schemas", name)).body

    def put_schema(self, name: str, descriptor_set: bytes) -> Schema:
        """Upload a serialized `FileDescriptorSet`, whose message types may be named from then on."""
        headers = {"content-type": "application/protobuf"}
        answer = self._connection.call("PUT", url_path("v1", "schemas", name), body=descriptor_set, headers=headers)
        return decode(Schema, answer.json())

    def delete_schema(self, name: str) -> None:
        """Remove a descriptor set; stores that were made with it stay readable."""
        self._connection.call("DELETE", url_path("v1", "schemas", name), again=False)

    # The rest

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _shards(self, id: str, params: Params) -> Sequence[str]:
        """Names of the safetensors files of a store; the index comes last."""
        try:
            index = self._connection.call("GET", self._view(id, SAFETENSORS, SHARD_INDEX), params=params).json()
        except NotFound:
            return [WHOLE_SHARD]
        names = sorted(set(index["weight_map"].values()))
        if not all(is_shard(name) for name in names):
            raise IntegrityError("The service returned an index with unusual file names")
        return [*names, SHARD_INDEX]

    def _view(self, ref: str, *steps: str) -> str:
        return url_path("v1", "stores", ref, *steps)

    def _path(self, ref: str, view: str, params: Params) -> str:
        """Path and query of the URL of a view."""
        return self._view(ref, *_steps(view)) + (f"?{urlencode(params, quote_via=quote)}" if params else "")

    def _whole(self, make: Callable[[], Remote]) -> bytes:
        """All bytes of a view, verified."""
        return retry_if_changed(make, lambda remote: read_whole(remote, self._parallel).getvalue())

    def _array(self, remote: Remote) -> np.ndarray[Any, Any]:
        data, headers = read_whole(remote, self._parallel).getbuffer(), remote.facts.headers
        return as_array(data, headers.get("x-tensor-dtype", ""), shape_of(headers.get("x-tensor-shape", "")))

    def _strings(self, ref: str, name: str, params: Params) -> np.ndarray[Any, Any] | None:
        """Tensor of strings, which the service gives as JSON only; None for other tensors."""
        try:
            path = self._view(ref, "tensors", name)
            said = self._connection.call("GET", path, params=[*params, ("format", "json")]).json()
        except Unsupported:
            return None
        return as_strings(said) if isinstance(said, dict) and said.get("dtype") == "STRING" else None


def merge_params(
    path: str, fields: Sequence[str], omit_larger_than: int | str | None, omit: Sequence[str] = ()
) -> Params:
    """Query parameters of a merge."""
    return [
        *given_params(path=path or None, omit_larger_than=None if omit_larger_than is None else str(omit_larger_than)),
        *(("fields", each) for each in fields),
        *(("omit", each) for each in omit),
    ]


def _steps(view: str) -> list[str]:
    """Segments of the URL of a view: the path of a file has several, all else one behind its kind."""
    kind, _, rest = view.partition("/")
    return [kind, *(rest.split("/") if kind == "files" else [rest] if rest else [])] if view else []


def _comma(tags: Sequence[str] | None) -> str | None:
    """Tags as a query has them."""
    return None if tags is None else ",".join(tags)


def _records_of(
    url: str, options: ClientOptions, id: str, file: str | None, framing: str | None, type: str | None
) -> RemoteRecords:
    """Records by a new client, which ends with the process."""
    return Client(url, **options).records(id, file=file, framing=framing, type=type)


def _headers(options: ClientOptions) -> dict[str, str]:
    """Headers of every request, with the token if there is one."""
    headers, token = dict(options.get("headers") or {}), options.get("token")
    if token is None:
        return headers
    if not (token.isascii() and token.isprintable() and token.strip()):
        raise InvalidInput("Invalid token: use one line of printable ASCII characters")
    return headers | {"authorization": f"Bearer {token.strip()}"}

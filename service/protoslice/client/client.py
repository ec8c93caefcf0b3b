"""The client of a service, which pushes, pulls and inspects stores. The client verifies all bytes that it returns."""

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
    """A message of the protobuf runtime, which can be parsed from bytes."""

    def ParseFromString(self, data: bytes, /) -> object:  # noqa: N802 - the runtime's name
        """Replace the content of this message with the serialized message `data`."""


M = TypeVar("M", bound=Parsing)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _TagsTaken:
    """The former tags of a restored store that now point at other stores."""

    tags_taken: tuple[str, ...]


@named_options
class Client(Administration, ClosedAtEnd):
    """Use a service over HTTP. Threads may share a client.

    In every method, `ref` is a store's id, the id's first 12 or more digits, or a tag. Failures raise the errors of
    `protoslice.errors`. Close the client after use, or use it in a `with` statement.

    Args:
        url: URL of the service, such as `http://127.0.0.1:8000`. Append `/spaces/NAME` to use another space.
        **options: Token, timeouts in seconds, retries, cache and other members of `ClientOptions`.

    Raises:
        InvalidInput: The URL or an option is invalid.

    Examples:
        >>> with protoslice.Client("http://127.0.0.1:8000", token=token) as client:
        ...     client.store("demo:1").size
        37000421
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self._options = options
        self._parallel = max(1, options.get("parallel", CONNECTIONS))
        self._retries = RetryPolicy(
            attempts=max(1, options.get("attempts", 6)), first_seconds=options.get("backoff_seconds", 0.1)
        )
        cache = options.get("cache")
        self.cache = Cache(cache) if isinstance(cache, str | os.PathLike) else cache
        """The `Cache` of pieces, or None without a cache."""
        self._connection = Connection(
            url,
            headers=_headers(options),
            timeout_seconds=options.get("timeout_seconds", 30.0),
            retries=self._retries,
        )

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __reduce__(self) -> tuple[Callable[[], Client], tuple[()]]:
        """Pickle the URL and the options, including the token. Unpickling creates a new client from them."""
        return partial(type(self), self.url, **self._options), ()

    @property
    def url(self) -> str:
        """URL of the service."""
        return self._connection.url

    # Stores

    def push(self, what: Pushable, **options: Unpack[PushOptions]) -> Pushed:
        """Create a store from a file, a folder, bytes, a message, or pieces of bytes.

        The service compares every file with its SHA-256 before the store becomes visible. If the connection breaks,
        content that can be read again is sent again. If an earlier push of a large file was interrupted, even in
        another process, this push resumes it.

        Args:
            what: Path of a file or folder, bytes, a protobuf message, or an iterable of bytes or messages.
            **options: Tags, type, root and other members of `PushOptions`.

        Returns:
            The new store, the number of bytes sent, and a report on the model. If a store with this content existed
            already, that store is returned.

        Raises:
            NotFound: There is no such file or folder.
            CorruptModel: The bytes are not a valid file of the given type.
            QuotaExceeded: The push exceeds a quota of the space.

        Examples:
            >>> pushed = client.push("model.onnx", tags=["demo:1"])
            >>> pushed.store.tags
            ('demo:1',)
        """
        return Push(self._connection, what, options).run()

    def register(self, files: Mapping[str, str], **options: Unpack[RegisterOptions]) -> Pushed:
        """Create a store from existing objects, without copying the objects. The operator has to allow their storage.

        Args:
            files: Mapping from paths in the store to URIs of objects.
            **options: Tags, type, root and other members of `RegisterOptions`.

        Returns:
            The store and a report on the model. The number of bytes sent is 0.

        Raises:
            InvalidInput: The service does not allow one of the URIs.
            StorageDenied: The token lacks the scope `register`, or the storage refuses access.

        Examples:
            >>> found = client.register({"model.onnx": "file:///models/model.onnx"}, tags=["in-place:1"])
            >>> found.store.source
            'register'
        """
        wanted: dict[str, Any] = {"files": dict(files), "tags": list(options.get("tags", ()))}
        wanted |= {name: options.get(name) for name in ("type", "root", "min_chunk", "max_chunk", "plan", "rules")}
        wanted |= {"report": True, "strict": options.get("strict", False)}
        answer = self._connection.call("POST", "/v1/stores/register", json=wanted, slow=True)
        said = answer.json()
        return Pushed(decode(Store, said), answer.status == 201, 0, 0, decode(Reported, said).report)

    def stores(self, **search: Unpack[StoreSearch]) -> Iterator[Store]:
        """Return all stores, or the stores that a search finds. By default, the newest stores come first.

        The iterator requests each page of the list only when it reaches the page.

        Args:
            **search: Conditions and order, see `StoreSearch`. A store has to meet all conditions.

        Returns:
            An iterator of stores.

        Raises:
            InvalidInput: A time is not a `datetime`, or a size is invalid.

        Examples:
            >>> [store.tags for store in client.stores(name="demo", max_size="1GiB", sort="-size")]
            [('demo:1',)]
        """
        return self._each(Store, "/v1/stores", search_params(search))

    def store(self, ref: str, *, names: bool = True) -> Store:
        """Return the facts of a store.

        The client checks that the id is the digest of the listed files and of the policy for chunks. Stores of files
        that were registered in place are not checked.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            names: True to include the store's names in model registries. A request without these names is faster.

        Returns:
            The store's id, type, files, size in bytes, and tags.

        Raises:
            NotFound: There is no such store.
            IntegrityError: The id does not match the files and the policy.

        Examples:
            >>> client.store("demo:1").type
            'onnx.ModelProto'
        """
        params = given_params(names=None if names else "false")
        answer = self._connection.call("GET", url_path("v1", "stores", ref), params=params)
        return verified_store(decode(Store, answer.json()), ref)

    def repositories(self, prefix: str = "") -> Iterator[RepositorySummary]:
        """Return the repositories of the model registries, with the stores of their current versions.

        Repositories of Hugging Face clients come first, then repositories of OCI clients, then folders of MLflow
        artifacts. Each of the three groups is sorted by name.

        Args:
            prefix: Beginning of the names of the repositories to return, or empty for all repositories.

        Returns:
            An iterator of repositories.

        Examples:
            >>> list(client.repositories("ann/"))
            []
        """
        return self._each(RepositorySummary, "/v1/repositories", given_params(prefix=prefix or None))

    def versions(self, repository: str) -> Iterator[RepositoryVersion]:
        """Return those branches and tags of a repository that have files.

        Args:
            repository: Name of the repository, such as `ann/resnet`.

        Returns:
            An iterator of versions.

        Raises:
            NotFound: There is no such repository.

        Examples:
            >>> next(client.versions("ann/resnet"))
            Traceback (most recent call last):
            protoslice.errors.NotFound: ...
        """
        return self._each(RepositoryVersion, url_path("v1", "repositories", *repository.split("/")))

    def remove(self, id: str, *, force: Iterable[str] = ()) -> Removed:
        """Remove a store and its tags; `restore` can undo this for a limited time.

        Names of the store in registries stay, but no longer resolve.

        Args:
            id: Id of the store, or the first 12 or more digits of the id. To remove only a tag, use `untag`. To get the
                id of a tag's store, use `store`.
            force: Tags, and names in registries, that refer to the store and may stop working.

        Returns:
            The tags that were removed, and the time until which the store can be restored.

        Raises:
            NotFound: There is no such store.
            StillNamed: The store has tags, or names in registries, that `force` does not list.
            Conflict: `id` is a tag.

        Examples:
            >>> id = client.store("demo:1").id
            >>> client.remove(id, force=["demo:1"]).tags
            ('demo:1',)
        """
        params = [("force", name) for name in force]
        answer = self._connection.call("DELETE", url_path("v1", "stores", id), params=params, again=False)
        return decode(Removed, answer.json())

    def restore(self, id: str) -> Restored:
        """Undo the removal of a store.

        The store's tags are restored too, except tags that now point at other stores.

        Args:
            id: Id of the removed store, the first 12 or more digits of the id, or a tag that the store had.

        Returns:
            The store, and the tags that were not restored.

        Raises:
            NotFound: There is no such removed store.
            Conflict: The service has already deleted the store's objects.

        Examples:
            >>> removed = client.remove(client.store("demo:1").id, force=["demo:1"])
            >>> client.restore(removed.id).store.tags
            ('demo:1',)
        """
        said = self._connection.call("POST", url_path("v1", "stores", id, "restore"), again=False).json()
        return Restored(decode(Store, said), decode(_TagsTaken, said).tags_taken)

    def describe(self, ref: str, description: str) -> Store:
        """Set the description of a store.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            description: Text for readers; an empty text removes the description.

        Returns:
            The store with its new description.

        Raises:
            NotFound: There is no such store.

        Examples:
            >>> client.describe("demo:1", "Trained on the May data.").description
            'Trained on the May data.'
        """
        body = {"description": description}
        return decode(Store, self._connection.call("PATCH", url_path("v1", "stores", ref), json=body).json())

    # Views

    def chunks(self, ref: str) -> Iterator[ChunkEntry]:
        """Return the chunks of a store with their digests.

        The first request for a store may be slow, because the service reads the whole store for the digests.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.

        Returns:
            An iterator of chunks, each with number, kind, type, path, size in bytes and SHA-256.

        Raises:
            NotFound: There is no such store, or it has no root proto.

        Examples:
            >>> [chunk.size for chunk in client.chunks("demo:1")]
            [1000396, 16000000, 12000000, 8000000]
        """
        for chunk in self._each(ChunkEntry, self._view(ref, "chunks"), slow=True):
            if chunk.sha256 is None:
                raise IntegrityError(f"The service listed chunk {chunk.index} without its digest")
            yield chunk

    def chunk(self, ref: str, chunk: int | ChunkEntry) -> bytes:
        """Return the content of a chunk: a serialized message, or raw bytes.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            chunk: Number of the chunk, or an item of `chunks`. For an item, the content may come from the cache.

        Returns:
            The verified bytes.

        Raises:
            NotFound: There is no such store or chunk.

        Examples:
            >>> len(client.chunk("demo:1", 3))
            8000000
        """
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
        """Return the pieces into which the service cuts the files of a store, with their digests.

        Versions of a model share pieces. The first request for a store may be slow, because the service reads the
        whole store for the digests.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.

        Returns:
            An iterator of pieces, each with file, offset, size in bytes and SHA-256.

        Raises:
            NotFound: There is no such store.

        Examples:
            >>> sum(piece.size for piece in client.pieces("demo:1"))
            37000421
        """
        return self._each(Piece, self._view(ref, "pieces"), slow=True)

    def tree(
        self, ref: str, path: str = "", *, depth: int = 1, file: str | None = None, type: str | None = None
    ) -> Iterator[Node]:
        """Return the nodes directly below a path.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            path: Path such as `graph.node[3]`, or empty for the root message.
            depth: Number of levels. With more than 1, each node contains its own children.
            file: Path of a stream of records, or of a bundle's index, to read instead of the root.
            type: Message type of the records in `file`.

        Returns:
            An iterator of nodes, each with path, kind, type, size in bytes, and value.

        Raises:
            NotFound: There is no such store or path.

        Examples:
            >>> [node.kind for node in client.tree("demo:1", "graph.node[0]")][:3]
            ['string', 'string', 'string']
        """
        params = given_params(path=path, depth=str(depth), file=file, type=type)
        return self._each(Node, self._view(ref, "tree"), params)

    def metadata(self, ref: str) -> bytes:
        """Return the serialized `ChunkMetadata` of a store, as TensorFlow's proto splitter writes it.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.

        Returns:
            The verified bytes.

        Raises:
            NotFound: There is no such store, or it has no root proto.

        Examples:
            >>> metadata = client.metadata("demo:1")
        """
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
        """Return the value at `path` as bytes, which the service merges from chunks.

        A message is returned serialized, or parsed into `into`. Other values are returned as their bytes or text.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            path: Path of the value, such as `graph.node[3]`, or empty for the whole root message.
            fields: Paths below `path` to keep, or empty for all.
            omit_larger_than: Size in bytes, or text such as `"1MiB"`. Larger fields are left out.
            omit: Paths below `path` to leave out.
            file: Path of a stream of records, or of a bundle's index, to read instead of the root.
            type: Message type of the records in `file`.
            into: Protobuf message into which the bytes are parsed.

        Returns:
            The verified bytes, or `into` if it was passed.

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
        """Return many views of a store with one request, in the order of `views`.

        Read each part before the next, because all parts arrive in one response.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            views: At most 1 000 percent-encoded paths below the store, each with an optional query. Examples:
                `chunks/3`, `tensors/w?slice=0:4`, `merge?path=graph.node[3]`, `files/config.json`.

        Returns:
            A generator of parts. The method `read` of a part returns the bytes of the part.

        Raises:
            NotFound: There is no such store or view.
            IntegrityError: A part does not match its digest.

        Examples:
            >>> views = ["merge?path=graph.name", "tensors/head.weight?slice=0:4"]
            >>> [len(part.read()) for part in client.parts("demo:1", views)]
            [4, 16]
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
        """List the tensors of a store, or of one meta graph of a SavedModel.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            name: List only tensors with this name, in which `*` matches any characters.
            dtype: List only tensors with this data type.
            sort: Sort by `name`, `dtype`, `shape` or `size`; a `-` in front sorts in descending order.
            tags: All tags of a meta graph of a SavedModel. List only the tensors of this meta graph.

        Returns:
            An iterator of tensors, each with name, data type, shape and size in bytes, but without elements.

        Raises:
            NotFound: There is no such store.

        Examples:
            >>> [tensor.name for tensor in client.tensors("demo:1", name="head.*")]
            ['head.weight']
        """
        params = given_params(name=name, dtype=dtype, sort=sort, tags=_comma(tags))
        return self._each(TensorEntry, self._view(ref, "tensors"), params)

    def summary(self, ref: str) -> ModelReport:
        """Return a report on the model in a store.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.

        Returns:
            Numbers of tensors, elements and bytes by data type, missing files, and names that several tensors share.

        Raises:
            NotFound: There is no such store.

        Examples:
            >>> client.summary("demo:1").tensors
            4
        """
        return decode(ModelReport, self._connection.call("GET", self._view(ref, "summary"), slow=True).json())

    def signatures(self, ref: str, *, tags: Sequence[str] | None = None) -> Iterator[Signature]:
        """Return the signatures of a model, which list its inputs and outputs.

        A SavedModel may have many signatures; other models have one.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            tags: All tags of a meta graph of a SavedModel. By default, the first meta graph is used.

        Returns:
            An iterator of signatures.

        Raises:
            NotFound: There is no such store or meta graph.
            Unsupported: The model's format has no inputs and outputs.

        Examples:
            >>> [len(signature.inputs) for signature in client.signatures("demo:1")]
            [0]
        """
        return self._each(Signature, self._view(ref, "signatures"), given_params(tags=_comma(tags)))

    def graph(self, ref: str, around: str | None = None, **options: Unpack[GraphOptions]) -> Neighbourhood:
        """Return the part of a graph around a node.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            around: Path or name of the node in the middle. By default, the graph's first and last nodes
                are in the middle.
            **options: The graph, the distance, words to search for, and the number of nodes. See `GraphOptions`.

        Returns:
            The nodes, and the edges between them.

        Raises:
            NotFound: There is no such store, graph or node.
            Unsupported: The model has no graph.

        Examples:
            >>> [node.name for node in client.graph("demo:1", "attention", hops=1).nodes]
            ['attention', 'embedding', 'feed_forward']
        """
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
        """Return a tensor, or a slice of a tensor, as a numpy array.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            name: Name or address of the tensor.
            slice: Text such as `"0:128,:"`, or a numpy index. None selects the whole tensor.
            tags: Tags of the SavedModel's meta graph that contains the tensor.
            dequantize: Return a quantized tensor as floats of 32 bits instead of rows of bytes.

        Returns:
            An array of the elements. For a tensor of strings, the elements are `bytes`.

        Raises:
            NotFound: There is no such store or tensor.
            Unsupported: numpy is not installed, or the data type needs ml_dtypes, which is not installed.

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
            # Only an error of the service, which has a request id, may mean a tensor of strings. Errors of this
            # client report a package that is not installed.
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
        """Let the service compute statistics of a tensor, or of a slice of a tensor, and return the statistics.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            name: Name or address of the tensor.
            slice: Text such as `"0:128,:"`, or a numpy index. None selects the whole tensor.
            sample: Maximum number of elements to read. Of a larger tensor, the service reads a sample that is spread
                over the tensor. The default is 16 777 216, and 0 reads all elements.
            tags: Tags of the SavedModel's meta graph that contains the tensor.

        Returns:
            Minimum, maximum, mean, standard deviation, number of zeros, and a histogram.

        Raises:
            NotFound: There is no such store or tensor.
            Unsupported: The elements are not numbers.

        Examples:
            >>> client.stats("demo:1", "head.weight").zeros
            0
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
        """Let the service compare two stores, and return their differences.

        Args:
            before: Id of the earlier store, the first 12 or more digits of the id, or a tag.
            after: Id of the later store, the first 12 or more digits of the id, or a tag.

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
        """Return how far the elements of a tensor differ between two stores.

        Args:
            before: Id of the earlier store, the first 12 or more digits of the id, or a tag.
            after: Id of the later store, the first 12 or more digits of the id, or a tag.
            name: Name or address of the tensor in `after`.
            was: Name or address of the tensor in `before`. The default is `name`.
            sample: Maximum number of elements to compare. Of a larger tensor, the service compares a sample that is
                spread over the tensor. The default is 16 777 216, and 0 compares all elements.

        Returns:
            The number of elements that differ, the largest and mean distance, and more.

        Raises:
            NotFound: There is no such store or tensor.
            Unsupported: The shapes differ, or the elements are not numbers.

        Examples:
            >>> client.tensor_delta("demo:1", "demo:1", "head.weight").changed
            0
        """
        params = given_params(before=before, was=was, sample=None if sample is None else str(sample))
        said = self._connection.call("GET", self._view(after, "diff", name), params=params, slow=True)
        return decode(TensorDelta, said.json())

    def records(
        self, ref: str, *, file: str | None = None, framing: str | None = None, type: str | None = None
    ) -> RemoteRecords:
        """Return the records of a stream as a sequence. Grain and PyTorch accept the sequence as a data source.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            file: Path of the stream. It is required if the store has several files.
            framing: `tfrecord`, `riegeli`, `delimited` or another framing, if the service cannot detect it.
            type: Message type of the records, if the service cannot detect it.

        Returns:
            The sequence of records. Each record is read when it is used.

        Raises:
            NotFound: There is no such store or file.
            Unsupported: The file is not a stream of records.

        Examples:
            >>> stored = client.push(bytes([3]) + b"abc" + bytes([2]) + b"de", filename="words.pb").store
            >>> records = client.records(stored.id, file="words.pb", framing="delimited")
            >>> records[1]
            b'de'
        """
        id, params = self.store(ref, names=False).id, given_params(file=file, framing=framing, type=type)
        said = self._connection.call("GET", self._view(id, "records"), params=[*params, ("summary", "")], slow=True)

        def ask(more: Params) -> bytes:
            return self._whole(lambda: self.source(id, "records", [*params, *more]))

        again = partial(_records_of, self.url, self._options, id, file, framing, type)
        return RemoteRecords(decode(RecordsSummary, said.json()), ask, again, self._parallel)

    def source(self, ref: str, view: str, params: Params = (), *, lean: bool = False) -> Remote:
        """Return a view as a source that answers range reads with verified bytes. `protoslice.open` accepts the source.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            view: Path below the store, such as `files/model.onnx`, `chunks/3`, `merge`, `cpb` or `safetensors`.
            params: Query parameters of the view, as pairs.
            lean: Fetch only the bytes that are read. By default, the first request fetches a mebibyte.

        Returns:
            The source. It makes no request before its first use.

        Examples:
            >>> client.source("demo:1", "files/model.onnx").read(0, 2).hex()
            '080a'
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
        """Download a view to the file `target`; without `view`, download all files of the store.

        A file that already exists with the same content is not fetched. An interrupted download is resumed. With a
        cache, pieces that earlier downloads left in the cache are not fetched again.

        The view `onnx` writes `weights.bin` and `model.onnx` into the folder `target`. The view `safetensors` with the
        parameter `shards=SIZE` writes an index and several files, each with at most `SIZE` bytes of elements.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            target: Folder for several files. For a single file, the path of the new file, or a folder for it. A text
                that ends with a slash names a folder, which is created.
            view: Path below the store, such as `files/model.onnx` or `safetensors`.
            params: Query parameters of the view, as pairs.
            progress: Function that is called as bytes arrive. It receives the number of bytes so far, and the total
                number or None.

        Returns:
            One item for each file written.

        Raises:
            NotFound: There is no such store or view.

        Examples:
            >>> files = client.download("demo:1", "here/")
            >>> len(files)
            1
        """
        terms = DownloadOptions(self._retries, self._parallel, self.cache, progress)
        if view is not None and is_folder(view, params):
            id = self.store(ref, names=False).id  # a tag may move between the downloads of two files
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
        """Return all tags, sorted by name.

        Returns:
            An iterator of tags, each with name, id of the store, and time of the last change.

        Examples:
            >>> [tag.name for tag in client.tags()][0]
            'demo:1'
        """
        return self._each(Tag, "/v1/tags")

    def tag(self, name: str, ref: str, *, create: bool = False, expected: str | None = None) -> Tag:
        """Point a tag at a store.

        Args:
            name: The tag.
            ref: Id of the store, the first 12 or more digits of the id, or another tag.
            create: Only create a new tag, and fail if the tag exists.
            expected: Id of the store at which the tag has to point before the change.

        Returns:
            The tag as it is now.

        Raises:
            Changed: With `create`, the tag exists already. Otherwise, another client changed the tag at the same time.
            Conflict: The tag does not point at `expected`.
            NotFound: There is no such store, or, with `expected`, no such tag.

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
        """Remove a tag, but keep its store.

        Args:
            name: The tag.

        Raises:
            NotFound: There is no such tag.

        Examples:
            >>> client.untag("demo:1")
        """
        self._connection.call("DELETE", url_path("v1", "tags", name), again=False)

    def sign(self, ref: str, view: str = "", params: Params = (), *, expires_seconds: int = 3600) -> str:
        """Return a signed URL that gives access to a view without a token.

        The URL works until it expires, or until the token of this client expires.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            view: Path below the store, as for `source`, or empty for the facts of the store.
            params: Query parameters of the view, as pairs.
            expires_seconds: Seconds until the URL expires.

        Returns:
            The URL. Everyone who has it can read the view.

        Raises:
            NotFound: There is no such store.
            Unsupported: The service requires no tokens; use `url_of`.

        Examples:
            >>> url = client.sign("demo:1", "files/model.onnx", expires_seconds=60)
        """
        path = self._path(ref, view, params)
        said = self._connection.call("POST", "/v1/sign", json={"path": path, "expires_seconds": expires_seconds})
        return decode(SignedUrl, said.json()).url

    def url_of(self, ref: str, view: str = "", params: Params = ()) -> str:
        """Return the URL of a view, or of the store.

        Args:
            ref: Id of the store, the first 12 or more digits of the id, or a tag.
            view: Path below the store, as for `source`, or empty for the facts of the store.
            params: Query parameters of the view, as pairs.

        Returns:
            The URL. The method makes no request.

        Examples:
            >>> client.url_of("demo:1", "merge", [("path", "graph.name")])
            'http://127.0.0.1:8000/v1/stores/demo%3A1/merge?path=graph.name'
        """
        return f"{self.url}{self._path(ref, view, params)}"

    def schemas(self) -> Iterator[Schema]:
        """Return all uploaded descriptor sets, sorted by name.

        Returns:
            An iterator of descriptor sets, each with name, size in bytes, and number of message types.

        Examples:
            >>> list(client.schemas())
            []
        """
        return self._each(Schema, "/v1/schemas")

    def schema(self, name: str) -> bytes:
        """Return an uploaded descriptor set.

        Args:
            name: Name of the descriptor set.

        Returns:
            A serialized `FileDescriptorSet`.

        Raises:
            NotFound: There is no such descriptor set.

        Examples:
            >>> client.schema("shop")
            Traceback (most recent call last):
            protoslice.errors.NotFound: ...
        """
        return self._connection.call("GET", url_path("v1", "schemas", name)).body

    def put_schema(self, name: str, descriptor_set: bytes) -> Schema:
        """Upload a descriptor set, so that stores can use its message types.

        Args:
            name: Name of the descriptor set. A descriptor set with the same name is replaced.
            descriptor_set: A serialized `FileDescriptorSet`, such as `protoc --descriptor_set_out` writes.

        Returns:
            The descriptor set's name, size in bytes, and number of message types.

        Raises:
            InvalidInput: The bytes are not a valid descriptor set.

        Examples:
            >>> from google.protobuf.descriptor_pb2 import FileDescriptorSet
            >>> types = FileDescriptorSet()
            >>> types.file.add(name="shop.proto", package="shop").message_type.add(name="Order")
            name: "Order"
            <BLANKLINE>
            >>> client.put_schema("shop", types.SerializeToString()).messages
            1
            >>> client.delete_schema("shop")
        """
        headers = {"content-type": "application/protobuf"}
        answer = self._connection.call("PUT", url_path("v1", "schemas", name), body=descriptor_set, headers=headers)
        return decode(Schema, answer.json())

    def delete_schema(self, name: str) -> None:
        """Remove a descriptor set. Stores that were created with the descriptor set stay readable.

        Args:
            name: Name of the descriptor set.

        Raises:
            NotFound: There is no such descriptor set.

        Examples:
            >>> client.delete_schema("shop")
            Traceback (most recent call last):
            protoslice.errors.NotFound: ...
        """
        self._connection.call("DELETE", url_path("v1", "schemas", name), again=False)

    # The rest

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _shards(self, id: str, params: Params) -> Sequence[str]:
        """Return the names of the files in the view `safetensors` of a store; the name of the index is last."""
        try:
            index = self._connection.call("GET", self._view(id, SAFETENSORS, SHARD_INDEX), params=params).json()
        except NotFound:
            return [WHOLE_SHARD]
        names = sorted(set(index["weight_map"].values()))
        if not all(is_shard(name) for name in names):
            raise IntegrityError("The service listed safetensors files with unexpected names")
        return [*names, SHARD_INDEX]

    def _view(self, ref: str, *steps: str) -> str:
        return url_path("v1", "stores", ref, *steps)

    def _path(self, ref: str, view: str, params: Params) -> str:
        """Return the path and query of a view's URL."""
        return self._view(ref, *_steps(view)) + (f"?{urlencode(params, quote_via=quote)}" if params else "")

    def _whole(self, make: Callable[[], Remote]) -> bytes:
        """Return all bytes of a view after verifying them."""
        return retry_if_changed(make, lambda remote: read_whole(remote, self._parallel).getvalue())

    def _array(self, remote: Remote) -> np.ndarray[Any, Any]:
        data, headers = read_whole(remote, self._parallel).getbuffer(), remote.facts.headers
        return as_array(data, headers.get("x-tensor-dtype", ""), shape_of(headers.get("x-tensor-shape", "")))

    def _strings(self, ref: str, name: str, params: Params) -> np.ndarray[Any, Any] | None:
        """Return a tensor of strings, or None for other tensors. The service sends strings only as JSON."""
        try:
            path = self._view(ref, "tensors", name)
            said = self._connection.call("GET", path, params=[*params, ("format", "json")]).json()
        except Unsupported:
            return None
        return as_strings(said) if isinstance(said, dict) and said.get("dtype") == "STRING" else None


def merge_params(
    path: str, fields: Sequence[str], omit_larger_than: int | str | None, omit: Sequence[str] = ()
) -> Params:
    """Return the query parameters of the view `merge`."""
    return [
        *given_params(path=path or None, omit_larger_than=None if omit_larger_than is None else str(omit_larger_than)),
        *(("fields", each) for each in fields),
        *(("omit", each) for each in omit),
    ]


def _steps(view: str) -> list[str]:
    """Split a view into segments of a URL path.

    The path after `files/` may have several segments. After any other kind of view, the rest is one segment.
    """
    kind, _, rest = view.partition("/")
    return [kind, *(rest.split("/") if kind == "files" else [rest] if rest else [])] if view else []


def _comma(tags: Sequence[str] | None) -> str | None:
    """Return tags joined by commas for a query parameter, or None if `tags` is None."""
    return None if tags is None else ",".join(tags)


def _records_of(
    url: str, options: ClientOptions, id: str, file: str | None, framing: str | None, type: str | None
) -> RemoteRecords:
    """Open a sequence of records with a new client, which stays open until the process ends."""
    return Client(url, **options).records(id, file=file, framing=framing, type=type)


def _headers(options: ClientOptions) -> dict[str, str]:
    """Return the headers of every request, including the token if the options have one."""
    headers, token = dict(options.get("headers") or {}), options.get("token")
    if token is None:
        return headers
    if not (token.isascii() and token.isprintable() and token.strip()):
        raise InvalidInput("Invalid token: use one line of printable ASCII characters")
    return headers | {"authorization": f"Bearer {token.strip()}"}

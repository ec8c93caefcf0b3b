"""Functions that open a model by any name that the command line accepts: a store of a service, or files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, overload

from protoslice import schema
from protoslice.errors import InvalidInput, NotFound, ProtosliceError, Unsupported, named_options
from protoslice.facts import Signature, TensorEntry
from protoslice.library.models import LocalModel, OpenedModel, Progress, open_files
from protoslice.references import address_of, authorization, is_address, saying_what_was_tried
from protoslice.sources.source import RangeSource
from protoslice.tensors.listing import TensorList, did_you_mean, keys

if TYPE_CHECKING:
    from protoslice.client import Client

_MOST_TAGS: Final = 5000
"""Number of tags from which a service has too many tags to search them for a suggestion."""


class RemoteModel(OpenedModel):
    """Read a model in a store of a service. `open_model` returns such an object.

    If `ref` is a tag, the store is fixed when the model is opened, even if the tag moves later. A model can be pickled
    for workers of data loaders.

    Args:
        client: Client of the service.
        ref: Id of the store, the first 12 or more digits of the id, or a tag.

    Raises:
        NotFound: There is no such store.

    Examples:
        >>> with protoslice.open_model("@demo:1") as model:
        ...     model.store.type, list(model)[0]
        ('onnx.ModelProto', 'embedding.weight')
    """

    def __init__(self, client: Client, ref: str, held: ExitStack | None = None) -> None:
        self.client = client
        """The client that makes the requests."""
        self.store = client.store(ref, names=False)
        """Facts about the store that contains the model."""
        self._held = held or ExitStack()

    @cached_property
    def _tensors(self) -> TensorList[TensorEntry]:
        return TensorList.of([*self.client.tensors(self.store.id)])

    def __reduce__(self) -> tuple[type[RemoteModel], tuple[Client, str]]:
        """Pickle the client and the store's id, so that another process can open the same store."""
        return RemoteModel, (self.client, self.store.id)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._tensors)

    def __iter__(self) -> Iterator[str]:
        return keys(self._tensors)

    def __repr__(self) -> str:
        return f"<RemoteModel {self.client.url_of(self.store.id)}: {self.store.type or 'unknown type'}>"

    def signatures(self, tags: Sequence[str] | None = None) -> Iterator[Signature]:
        """Return the signatures of the model, which list its inputs and outputs.

        Args:
            tags: All tags of a meta graph of a SavedModel. By default, the first meta graph is used.

        Returns:
            An iterator of signatures.

        Raises:
            NotFound: There is no such meta graph.
            Unsupported: The model's format has no inputs and outputs.

        Examples:
            >>> with protoslice.open_model("@demo:1") as model:
            ...     [len(signature.outputs) for signature in model.signatures()]
            [0]
        """
        return self.client.signatures(self.store.id, tags=tags)

    def close(self) -> None:
        """Close the connections that this model opened."""
        self._held.close()

    def _entries(self) -> Iterator[TensorEntry]:
        return iter(self._tensors) if "_tensors" in self.__dict__ else self.client.tensors(self.store.id)

    def _named(self, name: str) -> Sequence[TensorEntry]:
        if "_tensors" in self.__dict__ or "*" in name:  # in a request, `*` would match any characters
            tensors = self._tensors
        else:
            tensors = TensorList.of([*self.client.tensors(self.store.id, name=name)])
        return [tensors[number] for number in tensors.numbers(name)]

    def _elements(self, address: str, slice: str | None) -> Any:
        return self.client.tensor(self.store.id, address, slice)


@overload
def open_model(
    path: os.PathLike[str] | Mapping[str, RangeSource],
    root: str | None = None,
    type: str | None = None,
    *,
    types: schema.MessageTypes | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> LocalModel: ...
@overload
def open_model(
    path: str,
    root: str | None = None,
    type: str | None = None,
    *,
    types: schema.MessageTypes | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> OpenedModel: ...
@named_options
def open_model(
    path: str | os.PathLike[str] | Mapping[str, RangeSource],
    root: str | None = None,
    type: str | None = None,
    *,
    types: schema.MessageTypes | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> OpenedModel:
    """Open a model in files, or in a store of a service.

    The name of a store is `@TAG`, a URL such as `http://HOST/v1/stores/TAG`, or the URL of the store's web page. A name
    `@TAG` refers to the service in PROTOSLICE_URL. The function uses the same credentials as the command line. All
    arguments after `path` are only for files.

    Close the model after use, or use it in a `with` statement.

    Args:
        path: Path or URI of a file or directory, or the name of a store, or a mapping of paths to sources. A source has
            `size` and `read(offset, length)`, and is not closed. Files next to the root belong to the model.
        root: Path of the root in a directory. By default, the most likely file is the root.
        type: Full name of the root's message type. By default, the type is detected.
        types: Message types that are not bundled with this package.
        progress: Function that is called from time to time with the number of bytes done and the total.
        storage_options: Options of the storage backend of a URI.

    Returns:
        A mapping of names to tensors. The elements of a tensor are read when they are used.

    Raises:
        NotFound: There is no such file or store.
        NoRoot: No file in the directory is in a supported format.
        CorruptModel: The root is damaged.

    Examples:
        >>> with protoslice.open_model("model.onnx") as model:
        ...     model["head.weight"][:4].shape
        (4,)
        >>> with protoslice.open_model("@demo:1") as model:
        ...     len(model)
        4
    """
    if path == "":
        raise InvalidInput("No model given: pass a path, a URI, or a store such as @TAG")
    if not isinstance(path, str) or not is_address(path):
        with nullcontext() if isinstance(path, Mapping) else saying_what_was_tried(os.fspath(path)):
            return open_files(path, root, type, types=types, progress=progress, storage_options=storage_options)
    if (root, type, types, storage_options) != (None,) * 4:
        raise Unsupported("root, type, types and storage_options are only for files: those of a store are fixed")
    from protoslice.client import Client

    address = address_of(path)
    with ExitStack() as held:
        client = held.enter_context(Client(address.service, headers=authorization(address.service)))
        try:
            model = RemoteModel(client, address.ref)
        except NotFound as error:
            if (hint := other_tag(client, address.ref)) is not None:
                error.message += f"; {hint}"
            raise
        model._held = held.pop_all()
        return model
    raise AssertionError("a with block that returns")  # pragma: no cover


def other_tag(client: Any, ref: str) -> str | None:
    """Return a suggestion for a tag that does not exist: a similar tag of the service.

    Return None if the tag exists, if there is no similar tag, or if the service has 5000 or more tags.
    """
    with suppress(ProtosliceError):
        tags = [tag.name for tag in islice(client.tags(), _MOST_TAGS)]
        return None if ref in tags or len(tags) == _MOST_TAGS else did_you_mean(ref, tags)
    return None

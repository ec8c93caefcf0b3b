"""A model in a store of a service, and the connection to the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from protoslice.cli.models.source import ChunkPolicy, ModelSource, PathContent, RootType, TreeListing
from protoslice.cli.tables import utc
from protoslice.credentials import end_of
from protoslice.defaults import CONNECTIONS
from protoslice.errors import IntegrityError, InvalidInput, NotFound, ProtosliceError, UnknownCaller, Unsupported
from protoslice.facts import ModelReport, Neighbourhood, Signature, TensorEntry, TensorStatistics
from protoslice.formats.registry import TYPES
from protoslice.graphs import GraphQuery
from protoslice.models import other_tag
from protoslice.references import Address, address_of, authorization, is_address, is_trusted
from protoslice.tensors.omitted import HEADER, Omitted


@contextmanager
def connect(
    service: str,
    cache: Path | None = None,
    parallel: int = CONNECTIONS,
    *,
    header: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Open a client of the service, which makes at most `parallel` concurrent requests.

    `header` contains the Authorization header; None uses the saved or configured credentials. Errors mention the
    service if it does not respond, refuses the request, or sends an invalid response.
    """
    from protoslice.client import Client

    sent = authorization(service) if header is None else header
    with Client(service, cache=cache, parallel=parallel, headers=sent) as client:
        try:
            yield client
        except ProtosliceError as error:
            if isinstance(error, UnknownCaller):
                said = error.message.rstrip(".") if sent else "this service needs a token"
                error.message = f"{said}; {_ended(sent)}{_way_in(service) if header is None else _ASK}"
            # An `IntegrityError` without a service is about a response too: it was found after the request had ended.
            blamed = error.service or (client.url if isinstance(error, IntegrityError) else None)
            if blamed is not None and blamed not in error.message:
                error.message = f"{blamed}: {error.message}"
            raise


_ASK: Final = "check it, or ask the operator of the service for another"


def _ended(sent: Mapping[str, str]) -> str:
    """Return a text with the expiry time if the sent token is an expired JWT, or an empty text otherwise."""
    end = end_of(sent.get("authorization", "").removeprefix("Bearer "))
    return f"the JWT expired at {utc(end)}; " if end is not None and end <= datetime.now(UTC) else ""


def _way_in(service: str) -> str:
    """Return advice on how to send a token to the service."""
    ways = "run protoslice login, or set PROTOSLICE_TOKEN or PROTOSLICE_AUTHORIZATION"
    return (
        ways
        if is_trusted(service)
        else f"{ways}, and set PROTOSLICE_URL to this service (credentials are only sent there)"
    )


def names_of(store: Any) -> list[str]:
    """Return the tags of a store and its names in registries, without duplicates.

    An older service lists only the tags.
    """
    return list(dict.fromkeys((*store.tags, *(each.name for each in store.names))))


_MOST_SIGNATURES: Final = 1000


class RemoteContent:
    """The content of a view, which is streamed from the service."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.size: int = source.size

    def read(self) -> bytes:
        """Return all bytes."""
        return b"".join(self._source.parts(0, CONNECTIONS))

    def pieces(self) -> Iterator[memoryview]:
        """Return an iterator over all bytes in pieces."""
        return map(memoryview, self._source.parts(0, CONNECTIONS))


class RemoteModelSource(ModelSource):
    """A model in a store of a service."""

    def __init__(self, client: Any, address: Address, tags: Sequence[str] | None = None) -> None:
        self._client = client
        self._ref = address.ref
        self._tags = tags

    @classmethod
    @contextmanager
    def opened(cls, name: str, tags: Sequence[str] | None = None) -> Iterator[RemoteModelSource]:
        """Open the store `name`. With `tags`, only the meta graph that has exactly these tags provides tensors."""
        address = address_of(name)
        with connect(address.service) as client:
            try:
                yield cls(client, address, tags)
            except NotFound as error:
                if (hint := other_tag(client, address.ref)) is not None:
                    error.add_note(hint)
                raise

    def facts(self) -> dict[str, object]:
        store = self._client.store(self._ref)
        sizes = {file.path: file.size for file in store.files}
        return asdict(store) | {"root_size": sizes.get(store.root, 0)}

    def tree(self, path: str, limit: int) -> TreeListing:
        found = list(islice(self._client.tree(self._ref, path), limit + 1))
        return TreeListing(found[:limit], None if len(found) > limit else len(found))

    def rules(self, policy: ChunkPolicy) -> Sequence[str]:
        """See `ModelSource.rules`. The result does not depend on `policy`: a store keeps its rules."""
        rules: tuple[str, ...] = self._client.store(self._ref, names=False).rules
        return rules

    def chunks(self, policy: ChunkPolicy) -> Iterable[dict[str, object]]:
        if policy != ChunkPolicy():
            raise InvalidInput(
                "--min-chunk, --max-chunk, --rules and --splitter are only for files: a store's chunks are "
                "fixed when it is created"
            )
        return (asdict(chunk) for chunk in self._client.chunks(self._ref))

    def part(
        self,
        path: str,
        fields: Sequence[str] | None = None,
        omit_larger_than: int | None = None,
        omit: Sequence[str] = (),
    ) -> PathContent:
        from protoslice.client.client import merge_params

        source = self._client.source(self._ref, "merge", merge_params(path, fields or (), omit_larger_than, omit))
        headers = source.facts.headers
        return PathContent(RemoteContent(source), _kind(headers), headers.get("x-protobuf-message"))

    def summary(self) -> ModelReport | None:
        if self._client.store(self._ref, names=False).root is None:
            return None
        report: ModelReport = self._client.summary(self._ref)
        return None if report.tensors is None else report

    def largest(self, limit: int) -> Sequence[TensorEntry]:
        return list(islice(self._client.tensors(self._ref, sort="-size"), limit))

    def signatures(self) -> Iterator[Signature]:
        if self._client.store(self._ref, names=False).type not in TYPES:
            return iter(())
        try:
            return iter(list(islice(self._client.signatures(self._ref), _MOST_SIGNATURES)))
        except Unsupported:  # an older service knows fewer formats
            return iter(())

    def graph(self, query: GraphQuery) -> Neighbourhood:
        asked = {name: value for name, value in asdict(query).items() if value is not None}
        found: Neighbourhood = self._client.graph(self._ref, **asked)
        return found

    def tensors(self, name: str | None, dtype: str | None) -> Iterator[TensorEntry]:
        return iter(self._client.tensors(self._ref, name=name, dtype=dtype, tags=self._tags))

    def tensor(self, name: str, slice_: str | None, form: str) -> RemoteContent:
        params = [("format", form), *([("slice", slice_)] if slice_ is not None else []), *self._with_tags()]
        return RemoteContent(self._client.source(self._ref, f"tensors/{name}", params))

    def statistics(self, name: str, slice_: str | None, sample: int | None) -> TensorStatistics:
        found: TensorStatistics = self._client.stats(self._ref, name, slice_, sample=sample, tags=self._tags)
        return found

    def safetensors(self, name: str | None, *, strict: bool = False) -> tuple[RemoteContent, Omitted | None]:
        chosen = [] if name is None else [("name", name)]
        params = [*chosen, *([("strict", "true")] if strict else []), *self._with_tags()]
        source = self._client.source(self._ref, "safetensors", params)
        return RemoteContent(source), Omitted.parse(source.facts.headers.get(HEADER))

    def _with_tags(self) -> list[tuple[str, str]]:
        return [] if self._tags is None else [("tags", ",".join(self._tags))]


def _kind(headers: Any) -> str:
    """Return the kind of a value according to the response headers. Only text may be shown on a terminal."""
    media = headers.get("content-type", "")
    return "string" if media.startswith("text/") else "message" if "x-protobuf-message" in headers else "bytes"


@contextmanager
def open_source(
    name: str, root: RootType, *, close_look: bool = False, tags: Sequence[str] | None = None
) -> Iterator[ModelSource]:
    """Open the model `name`, which is a store or local files.

    With `close_look`, the index of a small file includes smaller messages. With `tags`, only the meta graph
    that has exactly these tags provides tensors.
    """
    if is_address(name):
        root.check_unused()
        with RemoteModelSource.opened(name, tags) as remote:
            yield remote
        return
    from protoslice.cli.models.local import LocalModelSource

    with ExitStack() as held:
        yield LocalModelSource(name, root, held, close_look=close_look, tags=tags)

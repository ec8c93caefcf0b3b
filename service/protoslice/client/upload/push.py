"""The push of files to a service, which verifies each file's digest before the store becomes visible."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from protoslice.client.download.files import Progress
from protoslice.client.http.connection import Connection, Params, ServiceAnswer
from protoslice.client.http.decoding import decode, verified_store
from protoslice.client.http.errors import is_transient, retry_once
from protoslice.client.upload import resumable
from protoslice.client.upload.bodies import Pushable, items_of
from protoslice.client.upload.journal import Journal
from protoslice.client.upload.plans import (
    FilePlan,
    PieceHashes,
    SplitOptions,
    content_length,
    hash_pieces,
    recipe_item,
    recipe_of,
)
from protoslice.client.upload.resumable import MOST_FILES, RESUME_MIN_BYTES, ResumableUploads
from protoslice.defaults import MAX_CHUNK, MIN_CHUNK
from protoslice.errors import Conflict, IntegrityError, InvalidInput, ProtosliceError, StorageDenied, UnknownCaller
from protoslice.facts import MissingPieces, ModelReport, Store
from protoslice.recipes import MEDIA_TYPE, Copy
from protoslice.sizes import parse_size

DEDUP_MIN_BYTES: Final = 8 << 20
"""Size in bytes below which a file is always sent whole: to search for its pieces would take as long as to send it."""
ASKED_AT_ONCE: Final = 4000
MOST_BASES: Final = 16
"""Maximum number of tags whose stores the service searches first."""
BEGINNING: Final = 256 << 20
"""Number of bytes at the beginning of a file. The pieces of this beginning are searched first.

If the service has none of these pieces, the rest of the file is probably unknown too.
"""


class RegisterOptions(TypedDict, total=False):
    """The options of a store that is created from objects that stay in place."""

    type: str
    """Full name of the root's message type. By default, the service detects the type."""
    root: str
    """Path of the file that is the root. By default, the service detects the root."""
    tags: Sequence[str]
    """Tags that will point at the store."""
    min_chunk: int | str
    """Size, in bytes or as a text such as `1MiB`, from which a field becomes a chunk."""
    max_chunk: int | str
    """Approximate size of the chunks into which long runs of repeated elements are split."""
    plan: str
    """The value `policy` plans new chunks for a chunked proto, by the sizes above.

    By default, a chunked proto keeps its own chunks.
    """
    rules: Sequence[str]
    """Rules that take precedence over the sizes, such as `node: every 1000`.

    By default, the service applies the rules that it has for the message type. An empty sequence applies no rules.
    """
    strict: bool
    """True makes the service refuse an unsound model, with an `UnsoundModel` error that lists the faults.

    A model is unsound if it lacks files to which it refers, or if it fails its own checksums. The service
    compares all checksums.
    """


class PushOptions(RegisterOptions, total=False):
    """The options of a push."""

    filename: str
    """Name of a single file in the store. The default is the name of the pushed file, or `model.pb`."""
    base: Sequence[str]
    """Stores from which the service copies common parts, which are then not sent. An empty sequence sends everything.

    By default, the service first searches the stores of the tags in `tags`. For a new tag, it searches the store of a
    tag with the same name before the colon (`resnet50:3` for `resnet50:4`). Then it searches all other stores whose
    pieces it knows.
    """
    resume: bool
    """True resumes an interrupted push of 64 MiB or more, even one of another process. True is the default."""
    progress: Progress | None
    """Function that receives the number of bytes sent so far, and the total number or None."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push."""

    store: Store
    created: bool
    """False if the service already had the same store."""
    sent: int
    """Number of content bytes that were sent."""
    copied: int
    """Number of content bytes that the service copied from its stores."""
    report: ModelReport | None = None
    """The service's report on the model, or None if the service makes no reports."""


@dataclass(frozen=True, slots=True)
class Reported:
    """The member `report` of the response to an upload."""

    report: ModelReport | None = None


class Push:
    """A single push to a service."""

    def __init__(self, connection: Connection, what: Pushable, options: PushOptions) -> None:
        self._connection = connection
        self._options = options
        self._items = items_of(what, options.get("filename"))
        self._local = Path(what) if isinstance(what, str | os.PathLike) else None
        self._tags = tuple(options.get("tags", ()))
        descriptor = getattr(what, "DESCRIPTOR", None)
        self._type: str | None = options.get("type") or getattr(descriptor, "full_name", None)

    def run(self) -> Pushed:
        """Send the files and return the result. After a failure, send content again if it can be read again."""
        try:
            plans = self._plans()
        except StorageDenied as error:
            if error.request_id is None or isinstance(error, UnknownCaller):
                raise
            # A token without the scope `read` may not search for pieces, but it may send everything.
            plans = self._whole()
        try:
            return self._send(plans)
        except Conflict:
            if not any(plan.copied for plan in plans):
                raise
            # The service found pieces to copy, but has removed them since then.
            return self._send(self._whole())

    def _whole(self) -> list[FilePlan]:
        return [FilePlan.whole(item) for item in self._items]

    def _plans(self) -> list[FilePlan]:
        """Return a plan for each file. The plans of large local files do not send pieces that the service has."""
        looked = [item for item in self._items if item.local is not None and (item.size or 0) >= DEDUP_MIN_BYTES]
        named = self._options.get("base")
        if not looked or named == []:
            return self._whole()
        options = SplitOptions(
            type=self._type,
            min_chunk=size_of(self._options.get("min_chunk")) or MIN_CHUNK,
            max_chunk=size_of(self._options.get("max_chunk")) or MAX_CHUNK,
            keep=self._options.get("plan") is None,
            rules=tuple(self._options.get("rules", ())),
        )
        hashed = {id(item): hash_pieces(item, options, up_to=BEGINNING if named is None else None) for item in looked}
        places, has_base = self._places(hashed.values())
        if any(file.sha256 is None for file in hashed.values()):
            if not places and not has_base:
                return self._whole()
            hashed = {at: file if file.sha256 else hash_pieces(file.item, options) for at, file in hashed.items()}
            places, _ = self._places(hashed.values())
        return [hashed[id(item)].plan(places) if id(item) in hashed else FilePlan.whole(item) for item in self._items]

    def _places(self, files: Iterable[PieceHashes]) -> tuple[dict[str, Copy], bool]:
        """Search for the pieces of `files` at the service, first in the base stores and then in all stores.

        Return the places of the pieces found, by digest. Also return whether there is a base store.
        """
        sizes = {sha256: size for file in files for _, size, sha256 in file.pieces}
        sizes |= {file.sha256: file.item.size or 0 for file in files if file.sha256 is not None}
        named = self._options.get("base")
        stores = {"tags": list(self._tags[:MOST_BASES])} if named is None else {"stores": list(dict.fromkeys(named))}
        places, has_base = dict[str, Copy](), False
        pairs = list(sizes.items())
        for at in range(0, len(pairs), ASKED_AT_ONCE):
            chunks = [{"sha256": sha256, "size": size} for sha256, size in pairs[at : at + ASKED_AT_ONCE]]
            said = self._missing({"chunks": chunks}, stores)
            has_base = has_base or bool(said.bases)
            for place in said.found:
                if sizes.get(place.sha256) == place.size:
                    places[place.sha256] = Copy(place.store, place.file, place.offset, place.size)
        return places, has_base

    def _missing(self, asked: dict[str, object], stores: dict[str, list[str]]) -> MissingPieces:
        """Request the places of pieces, and return the response. The service searches in `stores` first."""
        try:
            answer = self._connection.call("POST", "/v1/chunks/missing", json={**asked, **stores}, slow=True)
        except InvalidInput:
            if "tags" not in stores:
                raise
            # An older service refuses tags. Without tags, it searches all stores whose pieces it knows.
            answer = self._connection.call("POST", "/v1/chunks/missing", json=asked, slow=True)
        return decode(MissingPieces, answer.json())

    def _send(self, plans: Sequence[FilePlan]) -> Pushed:
        answer = self._sent(plans)
        store = decode(Store, answer.json())
        self._check(store, plans)
        copied = sum(plan.copied for plan in plans)
        report = decode(Reported, answer.json()).report
        return Pushed(store, answer.status == 201, store.size - copied, copied, report)

    def _sent(self, plans: Sequence[FilePlan]) -> ServiceAnswer:
        """Send the content and return the response.

        Large content is sent in resumable parts. Other content is sent in one request; if that request fails, the
        content is sent in parts.
        """
        known = all(plan.item.again and plan.sent is not None for plan in plans)
        size = sum(plan.sent or 0 for plan in plans) if known else 0
        if size >= RESUME_MIN_BYTES:
            return self._upload(plans)
        in_parts = size > resumable.CHECKED_PART
        try:
            return self._follow(plans, once=in_parts)
        except ProtosliceError as error:
            if not (in_parts and is_transient(error)):
                raise
        return self._upload(plans)

    def _upload(self, plans: Sequence[FilePlan]) -> ServiceAnswer:
        """Upload the files in resumable parts, and return the response about the new store.

        If the files are few, and the service copies nothing, the files are uploaded separately. Otherwise, a recipe is
        uploaded.
        """
        wanted: dict[str, object] = {name: value for name, value in self._params() if name not in {"tag", "rule"}}
        wanted |= {"report": True, "strict": self._options.get("strict", False), "rules": self._options.get("rules")}
        plain = len(plans) <= MOST_FILES and not any(plan.copied for plan in plans)
        items = [plan.item for plan in plans] if plain else [recipe_item(plans)]
        progress = self._options.get("progress")
        with self._journal() as journal:
            uploads = ResumableUploads(self._connection, items, type=self._type, progress=progress, journal=journal)
            return uploads.assemble(wanted | {"tags": self._tags})

    def _journal(self) -> Journal:
        """Return the journal of the push. Only a push of local files has a lasting journal."""
        if self._local is None or not self._options.get("resume", True):
            return Journal()
        return Journal.of(self._connection.url, self._local, self._type)

    def _follow(self, plans: Sequence[FilePlan], *, once: bool) -> ServiceAnswer:
        headers = {"content-type": MEDIA_TYPE}
        length, again = content_length(plans), all(plan.item.again for plan in plans)
        if length is not None:
            headers["content-length"] = str(length)

        def attempt() -> ServiceAnswer:
            return self._connection.call(
                "POST",
                "/v1/stores",
                params=self._params(),
                body=lambda: recipe_of(plans, self._options.get("progress")),
                headers=headers,
                again=again and not once,
                slow=True,
            )

        is_small = length is not None and length < RESUME_MIN_BYTES and len(plans) <= MOST_FILES
        return retry_once(attempt) if again and is_small else attempt()

    def _params(self) -> Params:
        chunks = ((name, self._options.get(name)) for name in ("min_chunk", "max_chunk", "plan"))
        strict = "true" if self._options.get("strict") else None
        given = [
            ("type", self._type),
            ("root", self._options.get("root")),
            *chunks,
            ("report", "true"),
            ("strict", strict),
        ]
        rules = self._options.get("rules")
        return [
            *((name, str(value)) for name, value in given if value is not None),
            *(("tag", tag) for tag in self._tags),
            # A single empty rule means no rules, not even the rules that the service has for the type.
            *(("rule", rule) for rule in (() if rules is None else rules or ("",))),
        ]

    def _check(self, store: Store, plans: Sequence[FilePlan]) -> None:
        """Raise `IntegrityError` if the store's files, tags or id do not match the request.

        The query of the request has no digest, so a damaged query would not be noticed otherwise.
        """
        sizes = {plan.item.path: plan.item.size for plan in plans}
        same = sizes.keys() == {file.path for file in store.files} and all(
            sizes[file.path] in {None, file.size} for file in store.files
        )
        if not same or not set(self._tags) <= set(store.tags):
            raise IntegrityError(f"The service created store {store.id}, which does not match what was pushed")
        verified_store(store, store.id)


def size_of(given: int | str | None) -> int | None:
    """Return a size in bytes from a number or from a text such as `1MiB`. Return None for None."""
    return parse_size(given) if isinstance(given, str) else given

"""Actions that push, tag and delete artifacts, as clients of OCI registries do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tests.stores.simulation.clients import TAGS, TROUBLE, Action, Client, pieces
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Entry, Ledger, Violation
from tests.stores.simulation.registers import Deed, linearizable
from tests.stores.simulation.sending import taken_in
from tests.support.stores import read

from protoslice.artifacts import ArtifactRepository, Digest, ManifestBlobUnknown, RepositoryName
from protoslice.errors import Conflict, NotFound
from protoslice.stores import Stores
from protoslice.stores.uploads import Body

REPOSITORIES = ("team/model", "team/copy")
MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushArtifact(Action):
    """Send the files of a content as blobs, and a manifest of them under a tag."""

    repository: str
    content: Content
    tag: str
    looks: bool
    """True when blobs that are there are not sent again."""
    mounts: bool
    """True when blobs are asked of the other repository first."""
    streams: int = 1
    """Requests that the bytes of a blob come in, before the one that ends it."""
    pause: float = 0.0
    """Seconds between the blobs and the manifest."""
    lifetime: float

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        yield from self.plainer(pause=0.0, mounts=False, looks=False)

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        began = client.cluster.loop.now
        try:
            for data in self.content.files.values():
                await self._blob(client, data)
            await asyncio.sleep(self.pause)
            await self._manifest(client)
        except (*TROUBLE, Conflict):
            return
        except (NotFound, ManifestBlobUnknown) as error:
            # Blobs that another client sent may expire earlier, unless a manifest names them.
            own = not (self.looks or self.mounts)
            if own and client.cluster.loop.now < began + self.lifetime - 2 * client.cluster.skew:
                raise Violation("an upload is there until it expires", str(error)) from error

    async def _blob(self, client: Client, data: bytes) -> None:
        digest = Digest.of(data)
        if self.looks:
            with suppress(NotFound):
                await client.ask("head", lambda stores: self._at(stores).blob(digest))
                return
        if self.mounts:
            (other,) = {*REPOSITORIES} - {self.repository}
            if await client.ask("mount", lambda stores: self._at(stores).mount(digest, RepositoryName(other))):
                return
        upload = (await client.ask("begin", lambda stores: self._at(stores).begin_upload())).id
        size = -(-len(data) // (self.streams + 1))
        ends = range(0, size * self.streams, size) if size else ()
        for at in ends:
            await client.ask("append", self._append(upload, at, data[at : at + size]))
        rest = data[size * self.streams :] if size else b""
        await client.ask("blob", lambda stores: self._at(stores).finish_upload(upload, digest, pieces(rest), None))

    def _append(self, upload: str, at: int, data: bytes) -> Callable[[Stores], Awaitable[object]]:
        return lambda stores: self._at(stores).append(upload, Body(pieces=pieces(data), offset=at))

    async def _manifest(self, client: Client) -> None:
        data, ledger = manifest_of(self.content), client.ledger
        digest = Digest.of(data).text
        entry = Entry(digest, ledger.moment())
        ledger.artifacts.setdefault(self.repository, []).append(entry)
        deed = Deed("set", entry.began, digest)
        ledger.artifact_tags.setdefault((self.repository, self.tag), []).append(deed)

        async def put(stores: Stores) -> tuple[str, bool]:
            stored, _, _ = await self._at(stores).put_manifest(self.tag, data, MEDIA_TYPE)
            return stored.store or "", False

        if await taken_in(client, self.content, (), "manifest", put, shares=True):
            deed.told = "done"
            ledger.end(deed, sure=True)
            entry.ended, entry.sure = ledger.moment(), True

    def _at(self, stores: Stores) -> ArtifactRepository:
        return ArtifactRepository(stores, RepositoryName(self.repository))


@dataclass(frozen=True, slots=True, kw_only=True)
class DropArtifact(Action):
    """Delete a tag, or a manifest with all its tags."""

    repository: str
    ref: str

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        ledger, began = client.ledger, client.ledger.moment()
        deeds = [self._deed(ledger, began, tag) for tag in TAGS if self.ref == tag or ":" in self.ref]
        entry = Entry(self.ref, began)
        ledger.artifacts_deleted.setdefault(self.repository, []).append(entry)
        told = False
        try:
            await client.ask("delete", lambda stores: _at(stores, self.repository).delete_manifest(self.ref))
            told = True
        except NotFound:
            for deed in deeds:
                deed.told = "missing" if ":" not in self.ref else "unsure"
        except (*TROUBLE, Conflict):
            return
        for deed in deeds:
            if told and ":" not in self.ref:
                deed.told = "done"
            ledger.end(deed, sure=True)

    def _deed(self, ledger: Ledger, began: int, tag: str) -> Deed:
        deeds = ledger.artifact_tags.setdefault((self.repository, tag), [])
        deeds.append(Deed("drop", began, of=self.ref if ":" in self.ref else None))
        return deeds[-1]


def manifest_of(content: Content) -> bytes:
    """A manifest whose layers are the files of a content."""
    layers = [
        {
            "mediaType": "application/octet-stream",
            "digest": Digest.of(data).text,
            "size": len(data),
            "annotations": {"org.opencontainers.image.title": path},
        }
        for path, data in content.files.items()
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": MEDIA_TYPE, "layers": layers}).encode()


async def check_artifacts(ledger: Ledger, stores: Stores) -> None:
    """Raise a `Violation` unless pushed manifests, their blobs and tags are what clients were told."""
    by_digest = {Digest.of(manifest_of(content)).text: content for content in ledger.contents.values()}
    for name, pushed in ledger.artifacts.items():
        repository, dropped = _at(stores, name), ledger.artifacts_deleted.get(name, [])
        for digest in {entry.store for entry in pushed if entry.sure and not _deleted(entry, dropped)}:
            await _check_manifest(repository, digest, by_digest[digest])
    for (name, tag), deeds in ledger.artifact_tags.items():
        deed = Deed("look", ledger.moment())
        try:
            deed.store, deed.told = (await _at(stores, name).manifest(tag)).digest.text, "done"
        except NotFound:
            deed.told = "missing"
        deed.ended = ledger.moment()
        if not linearizable([*deeds, deed]):
            raise Violation("a tag is where it was put", f"{name}:{tag}: " + "; ".join(map(str, [*deeds, deed])))


async def _check_manifest(repository: ArtifactRepository, digest: str, content: Content) -> None:
    try:
        if (await repository.manifest(digest)).data != manifest_of(content):
            raise Violation("a manifest is kept byte for byte", content.name)
        for path, data in content.files.items():
            store, place = await repository.open_blob(Digest.of(data))
            if await read(store.file(place)) != data:
                raise Violation("what was acknowledged can be read", f"{content.name}: another {path}")
    except NotFound as error:
        raise Violation("what was acknowledged can be read", f"{content.name}: {error}") from error


def _deleted(entry: Entry, dropped: list[Entry]) -> bool:
    return any(gone.store == entry.store and gone.ended > entry.began for gone in dropped)


def _at(stores: Stores, name: str) -> ArtifactRepository:
    return ArtifactRepository(stores, RepositoryName(name))

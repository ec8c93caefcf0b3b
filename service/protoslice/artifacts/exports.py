"""Commits of a repository as OCI manifests, made when first asked for; equal commits are equal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from protoslice.artifacts import ollama
from protoslice.artifacts.manifests import MAX_MANIFEST_BYTES
from protoslice.artifacts.repository import ArtifactRepository
from protoslice.catalog.artifacts import StoredManifest
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.syntax import BlobUnknown, Digest, ManifestUnknown, check_oci_tag, listed_name
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.file_names import without_version_control
from protoslice.formats.gguf import facts_of
from protoslice.repositories import MAIN, Commit, NoCommit, NoRepository, Repositories
from protoslice.serving.finding import FileRef
from protoslice.stores import Stores

_LATEST: Final = "latest"
_MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_KIND: Final = "application/vnd.protoslice.commit.v1"
_EMPTY: Final = b"{}"
"""Config of an artifact that has none, as the specification has it."""


class ExportedRepository:
    """An OCI repository that shows branches and tags of the repository of its name behind its own tags."""

    def __init__(self, stores: Stores, artifacts: ArtifactRepository) -> None:
        self._stores = stores
        self._artifacts = artifacts
        self._repositories = Repositories(stores)

    async def manifest(self, ref: str) -> StoredManifest:
        """The manifest that a tag, a branch or a digest names; `latest` is also the branch `main`.

        `ManifestUnknown` when there is none, `LimitExceeded` for files that no manifest can name.
        """
        try:
            return await self._artifacts.manifest(ref)
        except ManifestUnknown:
            commit = None if ":" in ref else await self._commit(ref)
            if commit is None or commit.store is None:
                raise
            return await self._exported(commit.store, commit.id)

    async def ollama(self, ref: str) -> StoredManifest:
        """The manifest for Ollama: a GGUF file of a revision, or of a quantization on the branch `main`.

        A manifest that was pushed is given as it is. `ManifestUnknown` when there is no such file.
        """
        try:
            return await self._artifacts.manifest(ref)
        except ManifestUnknown:
            if ":" in ref:
                raise
        revision, quantization = await self._model(ref)
        files = await self._stores.files(revision)
        path, other = ollama.chosen(files, quantization), ollama.projector(files)
        store = await self._stores.view(revision)
        facts = await self._stores.worker.bulk(lambda: facts_of(store.model.files[path], path))
        given = {
            kind: await store.file(name).read(ollama.MOST_TEXT)
            for name, kind in ollama.TEXTS.items()
            if name in files and files[name].size <= ollama.MOST_TEXT
        }
        texts, projected = ollama.texts_of(facts, given), None if other is None else files[other]
        models = [file for file in (files[path], projected) if file is not None]
        layers = [f"sha256:{file.sha256}" for file in models] + [Digest.of(text).text for text in texts.values()]
        config = ollama.config_of(facts, layers)
        data = ollama.manifest_of(config, files[path], projected, texts)
        made = StoredManifest(Digest.of(data), ollama.MEDIA_TYPE, data, revision)
        # What a manifest names may have been removed since, by itself or with the store of an earlier commit.
        for blob in (config, *texts.values()):
            await self._artifacts.keep(blob)
        if not await self._has(made.digest, models):
            places = {path: files[path], **({} if other is None else {other: files[other]})}
            await self._artifacts.table.put_blobs(
                {
                    Digest(f"sha256:{file.sha256}"): RepositoryFile(size=file.size, store=revision, path=place)
                    for place, file in places.items()
                }
            )
            await self._artifacts.table.put_manifest(made, computed=True)
        return made

    async def llama(self, ref: str) -> dict[str, object]:
        """Return the files of a model as llama.cpp asks for them: of a revision, or a quantization on `main`."""
        store, quantization = await self._model(ref)
        return ollama.files_for_llama(await self._stores.files(store), quantization)

    async def _model(self, ref: str) -> tuple[str, str | None]:
        """Return the store of a revision; for other words, that of `main` and the word as a quantization."""
        commit, quantization = await self._commit(ref), None
        if commit is None:
            commit, quantization = await self._commit(_LATEST), ref
        if commit is None or commit.store is None:
            raise ManifestUnknown(f"No revision or quantization {ref!r}")
        return commit.store, quantization

    async def _has(self, manifest: Digest, models: Iterable[FileRef]) -> bool:
        """True if a manifest is there, and the bytes of its models."""
        if not await self._artifacts.table.known([manifest]):
            return False
        with suppress(BlobUnknown):
            for model in models:
                await self._artifacts.blob(Digest(f"sha256:{model.sha256}"))
            return True
        return False

    async def tags(self, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """A page of names by which manifests are had, in their order, and True when there are more."""
        own, more = await self._artifacts.tags(limit=limit, after=after)
        others = [name for name in await self._names() if name > (after or "")]
        names = sorted({*own, *others})
        return names[:limit], more or len(names) > limit

    async def _names(self) -> list[str]:
        """Branches and tags that have files, and names that tags may have."""
        found = []
        with suppress(NoRepository, InvalidInput):
            async for ref in (await self._repositories.current(self._artifacts.name.text)).refs():
                with suppress(ManifestUnknown):
                    if ref.commit.store is not None:
                        found.append(check_oci_tag(ref.name))
        return found

    async def _commit(self, tag: str) -> Commit | None:
        with suppress(NoRepository, NoCommit, InvalidInput):
            repository = await self._repositories.current(self._artifacts.name.text)
            if repository.name.lower() != self._artifacts.name.key:  # moved: nothing is kept under a former name
                self._artifacts = ArtifactRepository(self._stores, listed_name(repository.name))
            return await repository.commit(MAIN if tag == _LATEST else tag)
        return None

    async def _exported(self, store: str, commit: str) -> StoredManifest:
        """The manifest of a store, kept with a record for each blob unless it is there."""
        files = await self._stores.files(store)
        data = await self._stores.worker.sized(300 * len(files), lambda: _manifest_of(files, commit))
        if len(data) > MAX_MANIFEST_BYTES:
            raise LimitExceeded(
                f"The manifest of these files would have {len(data)} bytes: at most {MAX_MANIFEST_BYTES} are allowed"
            )
        made = StoredManifest(Digest.of(data), _MEDIA_TYPE, data, store)
        await self._artifacts.keep(_EMPTY)
        if await self._artifacts.table.known([made.digest]):
            return made
        await self._artifacts.table.put_blobs(
            {
                Digest(f"sha256:{file.sha256}"): RepositoryFile(size=file.size, store=store, path=path)
                for path, file in without_version_control(files).items()
            }
        )
        await self._artifacts.table.put_manifest(made, computed=True)
        return made


def _manifest_of(files: Mapping[str, FileRef], commit: str) -> bytes:
    layers = [
        {**_described(f"sha256:{file.sha256}", file.size), "annotations": {"org.opencontainers.image.title": path}}
        for path, file in sorted(without_version_control(files).items())
    ]
    about: dict[str, Any] = {"schemaVersion": 2, "mediaType": _MEDIA_TYPE, "artifactType": _KIND}
    about["config"] = _described(Digest.of(_EMPTY).text, len(_EMPTY), "application/vnd.oci.empty.v1+json")
    about |= {"layers": layers, "annotations": {"org.opencontainers.image.revision": commit}}
    return json.dumps(about, separators=(",", ":")).encode()


def _described(digest: str, size: int, media_type: str = "application/octet-stream") -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}

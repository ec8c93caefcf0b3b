"""The commits of a repository as OCI manifests, for OCI clients and Ollama; equal commits yield equal bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from protoslice.artifacts.manifests import MAX_MANIFEST_BYTES
from protoslice.artifacts.repository import ArtifactRepository
from protoslice.catalog.artifacts import StoredManifest
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.syntax import BlobUnknown, Digest, ManifestUnknown, check_oci_tag, listed_name
from protoslice.errors import InvalidInput, LimitExceeded, Unsupported
from protoslice.file_names import without_version_control
from protoslice.formats.gguf import GgufFacts, facts_of
from protoslice.repositories import MAIN, Commit, NoCommit, NoRepository, Repositories
from protoslice.serving.finding import FileRef
from protoslice.stores import Stores

MEDIA_TYPE: Final = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG: Final = "application/vnd.docker.container.image.v1+json"
_LAYER: Final = "application/vnd.ollama.image."
TEXTS: Final = {"template": "template", "params": "params", "system": "system", "LICENSE": "license"}
"""Paths of files that become layers without change, each with the kind of its layer."""
MOST_TEXT: Final = 1 << 20
"""Largest size in bytes of a file that becomes a text layer."""
_SUFFIX: Final = ".gguf"
_PROJECTOR: Final = re.compile(r"(?i)(^|/|[-._])mmproj")
_SPLIT: Final = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)", re.IGNORECASE)
_FIRST: Final = re.compile(r"-00001-of-\d{5}\.gguf$", re.IGNORECASE)
_PREFERRED: Final = ("Q4_K_M", "Q4_0", "Q8_0")


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A chat format, with the marks around its messages.

    A chat template has the format if it contains all texts in `mark`.
    """

    mark: tuple[str, ...]
    system: tuple[str, str]
    user: tuple[str, str]
    assistant: tuple[str, str]
    stop: tuple[str, ...]

    @property
    def template(self) -> str:
        """The template in the form that Ollama uses."""
        before, after = self.system
        system = f"{{{{ if .System }}}}{before}{{{{ .System }}}}{after}{{{{ end }}}}" if before or after else ""
        (start, end), (answer, stop) = self.user, self.assistant
        prompt = f"{{{{ if .Prompt }}}}{start}{{{{ .Prompt }}}}{end}{{{{ end }}}}"
        return f"{system}{prompt}{answer}{{{{ .Response }}}}{stop}"


def _by_role(
    mark: tuple[str, ...], start: str, end: str, roles: tuple[str, str, str] = ("system", "user", "assistant")
) -> ChatFormat:
    """Return a format in which messages differ only in the name of the role."""
    system, user, assistant = ((start.replace("ROLE", role), end) for role in roles)
    named = start.strip().startswith("<|ROLE")
    stops = [f"<|{role}|>" for role in roles[:2]] if named else [start.partition("ROLE")[0]]
    return ChatFormat(mark, system, user, assistant, (*stops, end.strip()))


CHATS: Final = (
    _by_role(("<|im_start|>",), "<|im_start|>ROLE\n", "<|im_end|>\n"),
    _by_role(("<|start_header_id|>",), "<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>"),
    _by_role(("<start_of_turn>",), "<start_of_turn>ROLE\n", "<end_of_turn>\n", ("user", "user", "model")),
    _by_role(("<|user|>", "<|end|>"), "<|ROLE|>\n", "<|end|>\n"),
    _by_role(("<|user|>",), "<|ROLE|>\n", "</s>\n"),
    ChatFormat(
        ("[INST]",),
        ("", ""),
        ("[INST] {{ if .System }}{{ .System }}\n\n{{ end }}", " [/INST] "),
        ("", "</s>"),
        ("[INST]", "[/INST]"),
    ),
)


def chosen(files: Iterable[str], quantization: str | None, *, splits: bool = False) -> str:
    """Return the path of the GGUF file with a quantization; if `quantization` is None, with the most common one.

    If `splits` is True, the result may be the path of the first part of a split file.

    Raise `ManifestUnknown` if there is no GGUF file. Raise `InvalidInput` if all files have other quantizations; Ollama
    shows the message, which lists the files. Raise `Unsupported` if there are only split files.
    """
    found = sorted(path for path in files if path.lower().endswith(_SUFFIX) and not _PROJECTOR.search(path))
    whole = [path for path in found if not _SPLIT.search(path) or (splits and _FIRST.search(path))]
    for wanted in _PREFERRED if quantization is None else (quantization,):
        if fitting := [path for path in whole if _is_of(path, wanted)]:
            return fitting[0]
    if quantization is None and whole:
        return whole[0]
    if quantization is None and found:
        raise Unsupported("Ollama cannot load split GGUF files: join them with `llama-gguf-split --merge`")
    if not found:
        raise ManifestUnknown("The revision has no GGUF file, which Ollama and llama.cpp need")
    known = ", ".join(PurePosixPath(path).name for path in found[:20])
    raise InvalidInput(f"No GGUF file has the quantization {(quantization or '')[:80]!r}: the revision has {known}")


def projector(files: Iterable[str]) -> str | None:
    """Return the path of the file that projects images, or None if there is no such file."""
    return min((path for path in files if path.lower().endswith(_SUFFIX) and _PROJECTOR.search(path)), default=None)


def _is_of(path: str, quantization: str) -> bool:
    return (
        re.search(rf"(?i)(^|[-._/]){re.escape(quantization)}(\.gguf)?$", _SPLIT.sub("", path).removesuffix(_SUFFIX))
        is not None
    )


def files_for_llama(files: Mapping[str, FileRef], quantization: str | None) -> dict[str, object]:
    """Return the paths and sizes of a model's files, in the form that llama.cpp requests before a download."""
    found = {"ggufFile": chosen(files, quantization, splits=True), "mmprojFile": projector(files)}
    return {kind: {"rfilename": path, "size": files[path].size} for kind, path in found.items() if path is not None}


def texts_of(facts: GgufFacts, given: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the text layers of a model by kind; kinds that `given` lacks are made from the model's header."""
    made = dict(given)
    chat = next((each for each in CHATS if all(mark in facts.chat_template for mark in each.mark)), None)
    if chat is not None and "template" not in made:
        made["template"] = chat.template.encode()
        made.setdefault("params", json.dumps({"stop": chat.stop}).encode())
    if facts.license:
        made.setdefault("license", facts.license.encode())
    return made


def config_of(facts: GgufFacts, layers: Iterable[str]) -> bytes:
    """Return the JSON config of a model whose layers have the digests `layers`."""
    return json.dumps(
        {
            "model_format": "gguf",
            "model_family": facts.architecture,
            "model_families": [facts.architecture],
            "model_type": _rounded(facts.parameters),
            "file_type": facts.file_type,
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": list(layers)},
        }
    ).encode()


def manifest_of(config: bytes, model: FileRef, projected: FileRef | None, texts: Mapping[str, bytes]) -> bytes:
    """Return the OCI manifest with a config, a model, an optional projector and text layers."""
    layers = [_layer("model", f"sha256:{model.sha256}", model.size)]
    if projected is not None:
        layers.append(_layer("projector", f"sha256:{projected.sha256}", projected.size))
    layers += [_layer(kind, Digest.of(text).text, len(text)) for kind, text in sorted(texts.items())]
    about = {"mediaType": CONFIG, "digest": Digest.of(config).text, "size": len(config)}
    return json.dumps({"schemaVersion": 2, "mediaType": MEDIA_TYPE, "config": about, "layers": layers}).encode()


def _layer(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": _LAYER + kind, "digest": digest, "size": size}


def _rounded(count: int) -> str:
    """Return the number of parameters in a short form, such as 1.1B."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + unit
    return str(count)


_LATEST: Final = "latest"
_MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_KIND: Final = "application/vnd.protoslice.commit.v1"
_EMPTY: Final = b"{}"
"""The config that the specification defines for an artifact without a config."""


class ExportedRepository:
    """An OCI repository that also shows the branches and tags of the hub's repository of the same name.

    The OCI repository's own tags have priority.
    """

    def __init__(self, stores: Stores, artifacts: ArtifactRepository) -> None:
        self._stores = stores
        self._artifacts = artifacts
        self._repositories = Repositories(stores)

    async def manifest(self, ref: str) -> StoredManifest:
        """Return the manifest that a tag, a branch or a digest names; `latest` also means the branch `main`.

        Raise `ManifestUnknown` if no manifest has this name, and `LimitExceeded` if the files are too many for a
        manifest.
        """
        try:
            return await self._artifacts.manifest(ref)
        except ManifestUnknown:
            commit = None if ":" in ref else await self._commit(ref)
            if commit is None or commit.store is None:
                raise
            return await self._exported(commit.store, commit.id)

    async def ollama(self, ref: str) -> StoredManifest:
        """Return the manifest for Ollama, which contains a GGUF file of a revision.

        If `ref` is no revision, it is a quantization on the branch `main`. A pushed manifest is returned unchanged.
        Raise `ManifestUnknown` if no GGUF file matches.
        """
        try:
            return await self._artifacts.manifest(ref)
        except ManifestUnknown:
            if ":" in ref:
                raise
        revision, quantization = await self._model(ref)
        files = await self._stores.files(revision)
        path, other = chosen(files, quantization), projector(files)
        store = await self._stores.view(revision)
        facts = await self._stores.worker.run_long(lambda: facts_of(store.model.files[path], path))
        given = {
            kind: await store.file(name).read(MOST_TEXT)
            for name, kind in TEXTS.items()
            if name in files and files[name].size <= MOST_TEXT
        }
        texts, projected = texts_of(facts, given), None if other is None else files[other]
        models = [file for file in (files[path], projected) if file is not None]
        layers = [f"sha256:{file.sha256}" for file in models] + [Digest.of(text).text for text in texts.values()]
        config = config_of(facts, layers)
        data = manifest_of(config, files[path], projected, texts)
        made = StoredManifest(Digest.of(data), MEDIA_TYPE, data, revision)
        # The blobs of an existing manifest may have been removed since, alone or with the store of an earlier commit.
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
        """Return the paths and sizes of a model's files, in the form that llama.cpp requests.

        As in `ollama`, `ref` is a revision, or a quantization on the branch `main`.
        """
        store, quantization = await self._model(ref)
        return files_for_llama(await self._stores.files(store), quantization)

    async def _model(self, ref: str) -> tuple[str, str | None]:
        """Return a store, and a quantization or None.

        If `ref` is a revision, return its store and None. Otherwise, return the store of `main`, with `ref` as the
        quantization.
        """
        commit, quantization = await self._commit(ref), None
        if commit is None:
            commit, quantization = await self._commit(_LATEST), ref
        if commit is None or commit.store is None:
            raise ManifestUnknown(f"The repository has no revision or quantization {ref!r}")
        return commit.store, quantization

    async def _has(self, manifest: Digest, models: Iterable[FileRef]) -> bool:
        """Return True if the manifest exists and the bytes of all `models` exist too."""
        if not await self._artifacts.table.known([manifest]):
            return False
        with suppress(BlobUnknown):
            for model in models:
                await self._artifacts.blob(Digest(f"sha256:{model.sha256}"))
            return True
        return False

    async def tags(self, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """Return a page of the names of manifests, in order, and True if more names follow."""
        own, more = await self._artifacts.tags(limit=limit, after=after)
        others = [name for name in await self._names() if name > (after or "")]
        names = sorted({*own, *others})
        return names[:limit], more or len(names) > limit

    async def _names(self) -> list[str]:
        """Return the names of the branches and tags that have files and whose names are valid OCI tags."""
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
            if repository.name.lower() != self._artifacts.name.key:  # a former name must get no new rows
                self._artifacts = ArtifactRepository(self._stores, listed_name(repository.name))
            return await repository.commit(MAIN if tag == _LATEST else tag)
        return None

    async def _exported(self, store: str, commit: str) -> StoredManifest:
        """Return the manifest of a store; if the manifest is new, save it with a record for each blob."""
        files = await self._stores.files(store)
        data = await self._stores.worker.run_if_large(300 * len(files), lambda: _manifest_of(files, commit))
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

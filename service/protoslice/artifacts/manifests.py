"""The content of manifests: the blobs and manifests that they name, and the paths of blobs as files of a store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from protoslice.catalog.artifacts import StoredManifest
from protoslice.catalog.requests import FilePaths
from protoslice.catalog.syntax import Digest, DigestInvalid, ManifestInvalid
from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.file_names import is_version_control
from protoslice.json_text import encode_json, parse_json

MAX_MANIFEST_BYTES: Final = 4 << 20
"""Largest size in bytes of a manifest: the service accepts no more, and clients read no more."""
MAX_ANNOTATION_BYTES: Final = 64 << 10
"""Largest size in bytes of the annotations of a manifest with a subject, since lists of referrers repeat them."""
_MEDIA_TYPE: Final = re.compile(r"application/(?:json|vnd\.[a-z0-9!#$&^_.+-]{1,200}\+json)")
"""Pattern of the media types of manifests: types of JSON, which browsers do not render."""
_TITLE: Final = "org.opencontainers.image.title"
"""Annotation with the file name of a layer; oras marks even plain files with the media type of a tar archive."""
_FILE_PATH: Final = "org.cncf.model.filepath"
"""Annotation of ModelPack with the file name of a layer, which may also be an archive of that file."""
_ARCHIVES: Final = ("tar", "gzip", "zstd")
"""Words in the media types of layers that are archives."""
INDEX: Final = "application/vnd.oci.image.index.v1+json"
_BLOBS: Final = "blobs"
"""Folder of the blobs without a title."""
_INDEXES: Final = frozenset({INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"})


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A reference in a manifest to a blob or to another manifest."""

    place: str
    """Place in the manifest, such as `layers[0]`."""
    digest: Digest
    media_type: str
    title: str | None
    """Path of the blob as a file, or None if the descriptor has no path."""
    size: int | None
    """Number of bytes, or None if the descriptor has no size."""
    elsewhere: bool
    """True if the content need not be in the repository, because it may not be distributed or has other URLs."""


@dataclass(frozen=True, slots=True)
class ManifestContent:
    """The content of a manifest: its references and its annotations."""

    media_type: str
    blobs: tuple[Descriptor, ...]
    manifests: tuple[Descriptor, ...]
    subject: Digest | None
    artifact_type: str | None
    annotations: Mapping[str, str]


def parse(data: bytes, media_type: str) -> ManifestContent:
    """Parse a manifest that was sent with the Content-Type `media_type`.

    If `media_type` is empty, the manifest's own field `mediaType` counts. Raise `ManifestInvalid` unless the data is a
    JSON manifest of that type. Raise `LimitExceeded` if the manifest names more blobs and manifests than a store can
    hold. Also raise it if the annotations are too long for lists of referrers.
    """
    try:
        raw = parse_json(data)
    except ValueError as error:
        raise ManifestInvalid(f"The manifest is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ManifestInvalid("The manifest is not a JSON object")
    media_type = _media_type(raw, media_type)
    config = raw.get("config")
    blobs = [*([_descriptor(config, "config")] if config is not None else []), *_descriptors(raw, "layers")]
    manifests = tuple(_descriptors(raw, "manifests"))
    if len(blobs) + len(manifests) > MAX_FILES:
        raise LimitExceeded(f"The manifest lists too many blobs and manifests: at most {MAX_FILES} are allowed")
    subject, annotations = raw.get("subject"), _texts(raw.get("annotations"))
    if subject is not None and len(json.dumps(annotations)) > MAX_ANNOTATION_BYTES:
        raise LimitExceeded(
            f"The annotations are too large: a manifest with a subject may have {MAX_ANNOTATION_BYTES} bytes"
        )
    return ManifestContent(
        media_type,
        tuple(blobs),
        manifests,
        None if subject is None else _descriptor(subject, "subject").digest,
        _artifact_type(raw, media_type, config),
        annotations,
    )


def index_of(descriptors: Iterable[bytes], artifact_type: str | None) -> bytes:
    """Return an index of JSON descriptors; if `artifact_type` is not None, include only descriptors of that type."""
    found = [json.loads(each) for each in descriptors]
    listed = [each for each in found if artifact_type is None or each.get("artifactType") == artifact_type]
    return encode_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})


def described(manifest: StoredManifest, content: ManifestContent) -> dict[str, Any]:
    """Return the descriptor of a manifest, in the form that lists of referrers contain."""
    found: dict[str, Any] = {
        "mediaType": manifest.media_type,
        "digest": manifest.digest.text,
        "size": len(manifest.data),
    }
    if content.artifact_type is not None:
        found["artifactType"] = content.artifact_type
    if content.annotations:
        found["annotations"] = dict(content.annotations)
    return found


def blob_path(digest: Digest) -> str:
    """Return the path of a blob that has no title."""
    return f"{_BLOBS}/{digest.algorithm}/{digest.hex}"


def paths_of(descriptors: Iterable[Descriptor]) -> dict[Digest, Sequence[str]]:
    """Return the paths of each blob: the titles of its descriptors, or a path made from its digest.

    Titles are ignored if they are not valid paths, or if another blob has the same title.
    """
    found: dict[Digest, list[str]] = {}
    titled = {(each.title or "", each.digest): None for each in descriptors}
    taken = FilePaths()
    for title, digest in sorted(titled, key=lambda pair: pair[0]):
        paths = found.setdefault(digest, [])
        if title and title.partition("/")[0] != _BLOBS:
            with suppress(InvalidInput):
                taken.add(title)
                paths.append(title)
    return {digest: paths or [blob_path(digest)] for digest, paths in found.items()}


def _media_type(raw: dict[str, Any], sent: str) -> str:
    """Return the media type of a manifest with the Content-Type `sent`.

    Raise `ManifestInvalid` if the types in the header and in the manifest differ, or if the type is not JSON.
    """
    said = raw.get("mediaType", sent)
    if not isinstance(said, str):
        raise ManifestInvalid("The mediaType of the manifest is not a string")
    found = (sent or said).lower()
    if not found:
        raise ManifestInvalid("The manifest has no media type: send Content-Type")
    if said.lower() != found:
        raise ManifestInvalid(
            f"The mediaType of the manifest is {said[:120]!r}, but the Content-Type is {sent[:120]!r}"
        )
    if not _MEDIA_TYPE.fullmatch(found):
        raise ManifestInvalid(
            f"Invalid media type {found[:120]!r} of a manifest: use application/vnd.….+json, such as "
            "application/vnd.oci.image.manifest.v1+json"
        )
    return found


def _artifact_type(raw: dict[str, Any], media_type: str, config: object) -> str | None:
    """Return the type by which lists of referrers are filtered: the type of the manifest, else of its config."""
    found = raw.get("artifactType")
    if not found and media_type not in _INDEXES and isinstance(config, dict):
        found = config.get("mediaType")
    return found if isinstance(found, str) and found else None


def _descriptors(raw: dict[str, Any], name: str) -> Iterator[Descriptor]:
    found = raw.get(name)
    if found is None:
        return
    if not isinstance(found, list):
        raise ManifestInvalid(f"{name} is not a list")
    for number, each in enumerate(found):
        yield _descriptor(each, f"{name}[{number}]")


def _descriptor(raw: object, place: str) -> Descriptor:
    if not isinstance(raw, dict) or not isinstance(raw.get("digest"), str):
        raise ManifestInvalid(f"{place} is not a descriptor: it has no digest")
    try:
        digest = Digest(raw["digest"])
    except DigestInvalid as error:
        raise ManifestInvalid(f"{place}: {error.message}") from None
    size = raw.get("size")
    if size is not None and (type(size) is not int or size < 0):
        raise ManifestInvalid(f"{place}: the size must be a number of bytes")
    media_type = str(raw.get("mediaType", ""))
    annotations = _texts(raw.get("annotations"))
    title = annotations.get(_TITLE)
    for name in (title, annotations.get(_FILE_PATH)):  # clients write the blob to a file of this name
        if name and is_version_control(name):
            raise ManifestInvalid(f"{place}: invalid file path {name!r}: it must not lead into a folder such as .git")
    if not title and not any(word in media_type for word in _ARCHIVES):
        title = annotations.get(_FILE_PATH)
    elsewhere = "nondistributable" in media_type or "foreign" in media_type or bool(raw.get("urls"))
    return Descriptor(place, digest, media_type, title or None, size, elsewhere)


def _texts(raw: object) -> dict[str, str]:
    """Return the annotations whose values are texts."""
    return {name: text for name, text in raw.items() if isinstance(text, str)} if isinstance(raw, dict) else {}

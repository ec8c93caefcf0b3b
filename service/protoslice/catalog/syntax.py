"""The syntax of names: stores, tags, schemas, repositories, branches and commits, and OCI's names and digests."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from protoslice.errors import InvalidInput, NotFound, ProtosliceError

if TYPE_CHECKING:
    from hashlib import _Hash

VIEWS: Final = "views/"
"""Prefix of revisions that are views, such as `views/main` for the branch `main`; no branch or tag has this prefix."""
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_REF: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SHORT: Final = re.compile(r"[0-9a-f]{7,39}")
_LONGEST_NAME: Final = 200
_LONGEST_REF: Final = 128
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_OCI_NAME: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@~+-]{0,127}")
_ID_PREFIX: Final = re.compile(r"[0-9a-f]{12,64}")
_OCI_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_LONGEST_OCI_NAME: Final = 255


def check_tag(name: str) -> str:
    """Return `name`; raise `InvalidInput` unless it is a valid tag of a store."""
    if not _TAG.fullmatch(name):
        raise InvalidInput(
            f"Invalid tag {name!r}: use letters, digits or ._:@~+-, at most 128 characters, starting with "
            "a letter or digit"
        )
    if is_id_prefix(name):
        raise InvalidInput(f"Invalid tag {name!r}: it looks like the id of a store; add another character")
    return name


def is_tag_prefix(text: str) -> bool:
    """Return True if a tag may begin with `text`, which must not be empty."""
    return _TAG.fullmatch(text) is not None


def check_schema_name(name: str) -> str:
    """Return `name`; raise `InvalidInput` unless it is a valid name of a schema."""
    if not _TAG.fullmatch(name):
        raise InvalidInput(f"Invalid schema name {name!r}: use letters, digits or ._:@~+-, at most 128 characters")
    return name


def is_id(ref: str) -> bool:
    """Return True if `ref` is a complete store id."""
    return len(ref) == 64 and is_id_prefix(ref)


def is_id_prefix(ref: str) -> bool:
    """Return True if `ref` has the form of a store id, or of at least the first 12 digits of one."""
    return _ID_PREFIX.fullmatch(ref) is not None


def check_repository(name: str) -> str:
    """Return `name`; raise `InvalidInput` unless it is a valid name of a repository."""
    segments = name.split("/")
    if len(name) > _LONGEST_NAME or ".." in name or not all(map(_SEGMENT.fullmatch, segments)):
        raise InvalidInput(
            f"Invalid repository name {name[:_LONGEST_NAME]!r}: use letters, digits and ._- with slashes "
            f"between parts; at most {_LONGEST_NAME} characters"
        )
    return name


def check_ref(name: str) -> str:
    """Return `name`; raise `InvalidInput` unless it is a valid name of a branch or tag."""
    if len(name) > _LONGEST_REF or ".." in name or not _REF.fullmatch(name) or is_commit(name):
        raise InvalidInput(
            f"Invalid branch or tag name {name[:_LONGEST_REF]!r}: use letters, digits and ._+- with "
            f"slashes between parts, at most {_LONGEST_REF} characters, and nothing that looks like a "
            "commit id"
        )
    if name.startswith(VIEWS):
        raise InvalidInput(f"{name!r} is reserved for a view: choose a name that does not start with 'views/'")
    return name


def is_commit(revision: str) -> bool:
    """Return True if `revision` has the form of a commit id or of a store id."""
    return _COMMIT.fullmatch(revision) is not None


def is_short_commit(revision: str) -> bool:
    """Return True if `revision` has the form of the first digits of a commit id."""
    return _SHORT.fullmatch(revision) is not None


class ArtifactFault(ProtosliceError):
    """The base class of errors for which the OCI distribution specification defines a code."""

    code: ClassVar[str]


class NameInvalid(ArtifactFault, InvalidInput):
    """The error for a malformed name of a repository or tag."""

    code = "NAME_INVALID"


class DigestInvalid(ArtifactFault, InvalidInput):
    """The error for a malformed digest, or for bytes that have another digest."""

    code = "DIGEST_INVALID"


class BlobUnknown(ArtifactFault, NotFound):
    """The error for a blob that is not in the repository."""

    code = "BLOB_UNKNOWN"


class UploadUnknown(ArtifactFault, NotFound):
    """The error for an upload that is not in the repository."""

    code = "BLOB_UPLOAD_UNKNOWN"


class UploadInvalid(ArtifactFault, InvalidInput):
    """The error for an upload that cannot continue as the client requests."""

    code = "BLOB_UPLOAD_INVALID"


class ManifestUnknown(ArtifactFault, NotFound):
    """The error for a manifest or tag that is not in the repository."""

    code = "MANIFEST_UNKNOWN"


class ManifestInvalid(ArtifactFault, InvalidInput):
    """The error for a malformed manifest."""

    code = "MANIFEST_INVALID"


class ManifestBlobUnknown(ArtifactFault, InvalidInput):
    """The error for a manifest that refers to a blob or manifest that is not in the repository."""

    code = "MANIFEST_BLOB_UNKNOWN"


@dataclass(frozen=True, slots=True)
class RepositoryName:
    """The name of an OCI repository; the constructor raises `NameInvalid` for an invalid name."""

    text: str

    @property
    def key(self) -> str:
        """The name in lower case, by which the repository's artifacts are found."""
        return self.text.lower()

    def __post_init__(self) -> None:
        # The length is checked first: matching the expression against a megabyte would be slow.
        if len(self.text) > _LONGEST_OCI_NAME or not _OCI_NAME.fullmatch(self.text):
            raise NameInvalid(
                f"Invalid repository name {self.text[:80]!r}: use lower-case letters and digits, single "
                f"separators ._- between them and / between parts; at most {_LONGEST_OCI_NAME} characters"
            )


@dataclass(frozen=True, slots=True)
class HubName(RepositoryName):
    """The name of a hub repository, which may contain capitals; Ollama accepts capitals, but OCI clients do not."""

    def __post_init__(self) -> None:
        check_repository(self.text)


def listed_name(name: str) -> RepositoryName:
    """Return a repository's name, which may contain capitals; raise `NameInvalid` for an invalid name."""
    try:
        return RepositoryName(name)
    except NameInvalid:
        with suppress(InvalidInput):
            return HubName(name)
        raise


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest in OCI's form, `sha256:<hex>` or `sha512:<hex>`; other text raises `DigestInvalid`."""

    text: str

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.text):
            raise DigestInvalid(f"Invalid digest {self.text[:160]!r}: use sha256: or sha512: and lower-case hex digits")

    @classmethod
    def of(cls, data: bytes, algorithm: str = "sha256") -> Digest:
        """Return the digest of `data`."""
        return cls(f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}")

    @property
    def algorithm(self) -> str:
        """The name of the hash algorithm, `sha256` or `sha512`."""
        return self.text.partition(":")[0]

    @property
    def hex(self) -> str:
        """The hex digits without the algorithm."""
        return self.text.partition(":")[2]

    def hasher(self) -> _Hash:
        """Return a new hash object of the digest's algorithm."""
        return hashlib.new(self.algorithm)


def check_oci_tag(text: str) -> str:
    """Return `text`; raise `ManifestUnknown` unless it is a valid OCI tag, since no manifest can have another tag."""
    if not _OCI_TAG.fullmatch(text):
        raise ManifestUnknown(
            f"Invalid tag {text[:160]!r}: use letters, digits, '.', '_' or '-', at most 128 characters"
        )
    return text

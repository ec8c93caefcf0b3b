"""Syntax of names: stores, tags, schemas, repositories, branches, commits, and names and digests of OCI."""

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
"""Begin of revisions that are views, and of no branch or tag: of the branch `main`, `views/main`."""
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
    """Return `name`; raise `InvalidInput` unless it may be a tag of a store."""
    if not _TAG.fullmatch(name):
        raise InvalidInput(
            f"Invalid tag {name!r}: use letters, digits or ._:@~+-, at most 128 characters, starting with "
            "a letter or digit"
        )
    if is_id_prefix(name):
        raise InvalidInput(f"Invalid tag {name!r}: it looks like the id of a store; add another character")
    return name


def is_tag_prefix(text: str) -> bool:
    """Return True if a tag may begin with `text`, which is not empty."""
    return _TAG.fullmatch(text) is not None


def check_schema_name(name: str) -> str:
    """Return `name`; raise `InvalidInput` unless it may name a schema."""
    if not _TAG.fullmatch(name):
        raise InvalidInput(f"Invalid schema name {name!r}: use letters, digits or ._:@~+-, at most 128 characters")
    return name


def is_id(ref: str) -> bool:
    """Return True if `ref` is a complete store id."""
    return len(ref) == 64 and is_id_prefix(ref)


def is_id_prefix(ref: str) -> bool:
    """Return True if `ref` has the form of a store id or of a long enough prefix of one."""
    return _ID_PREFIX.fullmatch(ref) is not None


def check_repository(name: str) -> str:
    """Return `name`; raise `InvalidInput` unless it may name a repository."""
    segments = name.split("/")
    if len(name) > _LONGEST_NAME or ".." in name or not all(map(_SEGMENT.fullmatch, segments)):
        raise InvalidInput(
            f"Invalid repository name {name[:_LONGEST_NAME]!r}: use letters, digits and ._- with slashes "
            f"between parts; at most {_LONGEST_NAME} characters"
        )
    return name


def check_ref(name: str) -> str:
    """Return `name`; raise `InvalidInput` unless it may name a branch or tag."""
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
    """Return True if `revision` has the form of a commit's id, or of a store's."""
    return _COMMIT.fullmatch(revision) is not None


def is_short_commit(revision: str) -> bool:
    """Return True if `revision` has the form of the first digits of a commit's id."""
    return _SHORT.fullmatch(revision) is not None


class ArtifactFault(ProtosliceError):
    """Base of the errors that the OCI distribution specification has a code for."""

    code: ClassVar[str]


class NameInvalid(ArtifactFault, InvalidInput):
    """Malformed name of a repository or tag."""

    code = "NAME_INVALID"


class DigestInvalid(ArtifactFault, InvalidInput):
    """Malformed digest, or bytes of another digest."""

    code = "DIGEST_INVALID"


class BlobUnknown(ArtifactFault, NotFound):
    """No such blob in the repository."""

    code = "BLOB_UNKNOWN"


class UploadUnknown(ArtifactFault, NotFound):
    """No such upload in the repository."""

    code = "BLOB_UPLOAD_UNKNOWN"


class UploadInvalid(ArtifactFault, InvalidInput):
    """Upload that cannot continue as requested."""

    code = "BLOB_UPLOAD_INVALID"


class ManifestUnknown(ArtifactFault, NotFound):
    """No such manifest or tag in the repository."""

    code = "MANIFEST_UNKNOWN"


class ManifestInvalid(ArtifactFault, InvalidInput):
    """Malformed manifest."""

    code = "MANIFEST_INVALID"


class ManifestBlobUnknown(ArtifactFault, InvalidInput):
    """Manifest that names a blob or manifest which the repository lacks."""

    code = "MANIFEST_BLOB_UNKNOWN"


@dataclass(frozen=True, slots=True)
class RepositoryName:
    """Name of a repository of OCI; raise `NameInvalid` for any other text."""

    text: str

    @property
    def key(self) -> str:
        """The name in lower case, by which the artifacts of a repository are found."""
        return self.text.lower()

    def __post_init__(self) -> None:
        # The length goes first: the expression must not be tried on a megabyte.
        if len(self.text) > _LONGEST_OCI_NAME or not _OCI_NAME.fullmatch(self.text):
            raise NameInvalid(
                f"Invalid repository name {self.text[:80]!r}: use lower-case letters and digits, single "
                f"separators ._- between them and / between parts; at most {_LONGEST_OCI_NAME} characters"
            )


@dataclass(frozen=True, slots=True)
class HubName(RepositoryName):
    """Name of a repository of the hub, which may have capitals: Ollama reads these, and clients of OCI do not."""

    def __post_init__(self) -> None:
        check_repository(self.text)


def listed_name(name: str) -> RepositoryName:
    """Return the name of a repository, which may have capitals; raise `NameInvalid` for other texts."""
    try:
        return RepositoryName(name)
    except NameInvalid:
        with suppress(InvalidInput):
            return HubName(name)
        raise


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest of OCI in its text form, `sha256:<hex>` or `sha512:<hex>`; raise `DigestInvalid` for any other text."""

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
        """`sha256` or `sha512`."""
        return self.text.partition(":")[0]

    @property
    def hex(self) -> str:
        """The digits alone."""
        return self.text.partition(":")[2]

    def hasher(self) -> _Hash:
        """Return a new hash object of the algorithm."""
        return hashlib.new(self.algorithm)


def check_oci_tag(text: str) -> str:
    """Return `text`; raise `ManifestUnknown` unless it is a valid OCI tag, since no manifest can have it."""
    if not _OCI_TAG.fullmatch(text):
        raise ManifestUnknown(
            f"Invalid tag {text[:160]!r}: use letters, digits, '.', '_' or '-', at most 128 characters"
        )
    return text

"""Names of repositories and tags, and digests, by the grammar of the OCI distribution specification."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from protoslice.artifacts.faults import DigestInvalid, ManifestUnknown, NameInvalid
from protoslice.errors import InvalidInput
from protoslice.repositories.names import check_repository

if TYPE_CHECKING:
    from hashlib import _Hash

_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class RepositoryName:
    """Name of a repository; `NameInvalid` for any other text."""

    text: str

    @property
    def key(self) -> str:
        """The name in lower case, by which the artifacts of a repository are found."""
        return self.text.lower()

    def __post_init__(self) -> None:
        # The length goes first: the expression must not be tried on a megabyte.
        if len(self.text) > _LONGEST_NAME or not _NAME.fullmatch(self.text):
            raise NameInvalid(
                f"Invalid repository name {self.text[:80]!r}: use lower-case letters and digits, single "
                f"separators ._- between them and / between parts; at most {_LONGEST_NAME} characters"
            )


@dataclass(frozen=True, slots=True)
class HubName(RepositoryName):
    """Name of a repository of the hub, which may have capitals: Ollama reads these, and clients of OCI do not."""

    def __post_init__(self) -> None:
        check_repository(self.text)


def listed_name(name: str) -> RepositoryName:
    """Return the name of a repository, which may have capitals; `NameInvalid` for other texts."""
    try:
        return RepositoryName(name)
    except NameInvalid:
        with suppress(InvalidInput):
            return HubName(name)
        raise


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest as it is written, `sha256:<hex>` or `sha512:<hex>`; `DigestInvalid` for any other text."""

    text: str

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.text):
            raise DigestInvalid(f"Invalid digest {self.text[:160]!r}: use sha256: or sha512: and lower-case hex digits")

    @classmethod
    def of(cls, data: bytes, algorithm: str = "sha256") -> Digest:
        """The digest of `data`."""
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
        """A new hash object of the algorithm."""
        return hashlib.new(self.algorithm)


def check_tag(text: str) -> str:
    """`text` unchanged; `ManifestUnknown` unless it may be a tag, since no manifest can bear it."""
    if not _TAG.fullmatch(text):
        raise ManifestUnknown(
            f"Invalid tag {text[:160]!r}: use letters, digits, '.', '_' or '-', at most 128 characters"
        )
    return text

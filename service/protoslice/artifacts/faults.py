"""Errors of artifacts, each with its code in the OCI distribution specification."""

from __future__ import annotations

from typing import ClassVar

from protoslice.errors import InvalidInput, NotFound, ProtosliceError


class ArtifactFault(ProtosliceError):
    """Base of the errors that the specification has a code for."""

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
    """Upload that cannot go on as asked."""

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

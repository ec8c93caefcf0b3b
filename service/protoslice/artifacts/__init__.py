"""OCI artifacts over stores, without HTTP: repositories with blobs, manifests, tags and referrers.

A blob begins as a resumable upload. The first manifest that names the blob makes one store of all blobs of the manifest
that are not in a store yet, with the files of layers under their own names. A blob that is read earlier becomes a
separate store.
"""

from protoslice.artifacts.manifests import MAX_MANIFEST_BYTES
from protoslice.artifacts.repository import ArtifactRepository, repository_names
from protoslice.catalog.artifacts import StoredManifest
from protoslice.catalog.syntax import (
    ArtifactFault,
    BlobUnknown,
    Digest,
    DigestInvalid,
    ManifestBlobUnknown,
    ManifestInvalid,
    ManifestUnknown,
    NameInvalid,
    RepositoryName,
    UploadInvalid,
    UploadUnknown,
)

__all__ = [
    "MAX_MANIFEST_BYTES",
    "ArtifactFault",
    "ArtifactRepository",
    "BlobUnknown",
    "Digest",
    "DigestInvalid",
    "ManifestBlobUnknown",
    "ManifestInvalid",
    "ManifestUnknown",
    "NameInvalid",
    "RepositoryName",
    "StoredManifest",
    "UploadInvalid",
    "UploadUnknown",
    "repository_names",
]

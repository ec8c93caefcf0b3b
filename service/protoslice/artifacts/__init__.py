"""OCI artifacts over stores, independent of HTTP: repositories with blobs, manifests, tags and referrers.

A blob begins as a resumable upload. The first manifest that names the blob creates one store of all blobs of the
manifest that are not in a store yet. In this store, the files of layers have their own names. A blob that is read
before any manifest names it becomes a separate store.
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

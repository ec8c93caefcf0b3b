"""Catalog of a storage: manifests, tags, schemas, files by digest, claims and artifacts."""

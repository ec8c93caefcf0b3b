"""Catalog of a storage: manifests, tags, schemas, claims and artifacts."""

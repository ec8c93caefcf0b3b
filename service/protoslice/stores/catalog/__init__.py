"""Catalog of a storage: manifests, tags, schemas and claims, and the records that garbage collection reads."""

"""The records of a storage: manifests, tags, schemas, claims, and collecting what none of them names."""

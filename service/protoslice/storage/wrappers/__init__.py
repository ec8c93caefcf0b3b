"""Wrappers of storages: a storage around a storage."""

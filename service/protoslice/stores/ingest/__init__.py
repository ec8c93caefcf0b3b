"""Ingest of stores: from arriving bytes to a manifest."""

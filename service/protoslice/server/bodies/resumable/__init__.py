"""Resumable uploads on the wire: tus 1.0."""

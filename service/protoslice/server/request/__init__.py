"""Middleware around every request: its record, its limits, its origin, its failures."""

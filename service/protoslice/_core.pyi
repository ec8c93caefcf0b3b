"""The wire engine: bytes in, facts out."""

"""`https://` and `http://`, read-only."""

"""Messages as JSON or text, made in worker processes."""

"""The middleware around every request: its log line, its limits, its origin and its failures."""

"""The HTML pages of the service."""

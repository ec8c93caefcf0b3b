"""Webhooks: events of spaces, written before each change and POSTed to the URLs that a space names."""

"""Webhooks: events of spaces, written with each change and POSTed to the URLs that a space names."""

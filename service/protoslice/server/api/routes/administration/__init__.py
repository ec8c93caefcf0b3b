"""Calls of administrators: spaces, tokens, webhooks."""

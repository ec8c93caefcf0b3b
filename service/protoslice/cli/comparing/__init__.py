"""Comparing two models, or one model with its digests."""

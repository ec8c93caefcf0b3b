"""Readers of stores: objects, views, tensors and digests."""

"""Reading a store: its objects, views, tensors and digests."""

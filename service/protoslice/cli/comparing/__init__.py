"""How two models are compared, and one with its digests."""

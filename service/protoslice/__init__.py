"""Index, split, merge and serve protobufs of any size, part by part."""

"""The library, which opens a path or URI as an indexed proto, or as a model with tensors."""

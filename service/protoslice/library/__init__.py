"""The library: a path or URI becomes an indexed proto, or a model with its tensors."""

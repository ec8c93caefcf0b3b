"""Tensors: dtypes, shapes, slices, elements, and reading them."""

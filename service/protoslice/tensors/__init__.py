"""Tensors: the place and encoding of their elements, and code to list, read and export them."""

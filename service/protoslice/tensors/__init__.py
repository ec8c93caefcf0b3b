"""Tensors: where and how their elements are stored, and how they are listed, read and written to other files."""

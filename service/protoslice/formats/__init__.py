"""Formats: which tensors a model has, and where their bytes lie."""

"""Formats: the tensors of a model and the location of their bytes."""

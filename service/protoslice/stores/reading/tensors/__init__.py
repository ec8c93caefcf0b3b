"""Tensors and signatures of an opened store."""

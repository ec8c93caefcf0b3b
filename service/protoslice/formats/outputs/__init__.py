"""Tensors given out: `.npy`, safetensors, zarr references, listings."""

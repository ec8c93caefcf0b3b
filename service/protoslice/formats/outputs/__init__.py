"""Outputs: tensors as `.npy`, safetensors, zarr references and rows of a listing."""

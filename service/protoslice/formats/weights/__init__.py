"""Files of weights that are no protos: safetensors and GGUF."""

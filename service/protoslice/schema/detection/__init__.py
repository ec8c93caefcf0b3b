"""Detection of a file's kind and type: by magic bytes, name and structure."""

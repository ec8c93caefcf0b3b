"""Detection of the type of a file: by magic bytes, name and structure."""

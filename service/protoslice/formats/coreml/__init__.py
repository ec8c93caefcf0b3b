"""Core ML: neural networks, ML programs, packages and blob files."""

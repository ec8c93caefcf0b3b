"""The protocols of model registries, served from repositories. Each has a separate package or module."""

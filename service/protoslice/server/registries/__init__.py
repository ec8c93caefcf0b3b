"""Registries: protocols of model registries over repositories, each in a separate package or module."""

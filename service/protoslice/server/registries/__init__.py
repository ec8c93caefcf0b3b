"""Registries: protocols of model registries over repositories, each in a room of its own."""

"""Comparison of two models, for the command line and the service."""

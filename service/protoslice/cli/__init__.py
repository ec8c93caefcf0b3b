"""The command line."""

from protoslice.cli.app import main

__all__ = ["main"]

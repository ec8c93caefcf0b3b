"""The command line."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the program that the arguments say."""
    try:
        from protoslice.cli.app import run
    except KeyboardInterrupt:  # somebody was quicker than the imports
        sys.exit(130)
    run()

"""The command line program."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the program with the arguments of the process."""
    try:
        from protoslice.cli.app import run
    except KeyboardInterrupt:  # the user pressed Ctrl-C during the imports
        sys.exit(130)
    run()

"""Compare two versions of a model; exit with status 1 if they differ, as a CI check needs it.

python compare.py http://127.0.0.1:8000 demo:1 demo:2
"""

import sys

from protoslice import Client


def main(url: str, before: str, after: str) -> int:
    """Print one line for each difference, and return the exit status."""
    with Client(url) as client:
        differences = list(client.diff(before, after))
    for found in differences:
        print(found.change, found.what, found.path, found.detail)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

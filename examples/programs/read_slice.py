"""Read a few rows of a tensor by range, without downloading the model.

python read_slice.py http://127.0.0.1:8000 demo:1 head.weight 0:4
"""

import sys

from protoslice import Client


def main(url: str, ref: str, name: str, rows: str) -> None:
    """Print the rows as a NumPy array."""
    with Client(url) as client:
        print(client.tensor(ref, name, rows))


if __name__ == "__main__":
    main(*sys.argv[1:])

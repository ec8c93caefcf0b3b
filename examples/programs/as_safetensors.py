"""Download the tensors of a model of any format as one safetensors file.

python as_safetensors.py http://127.0.0.1:8000 demo:1 weights.safetensors
"""

import sys

from protoslice import Client


def main(url: str, ref: str, target: str) -> None:
    """Write the file and verify it; an interrupted run is continued."""
    with Client(url) as client:
        for file in client.download(ref, target, view="safetensors"):
            print(f"{file.path}: {file.size} bytes")
            if file.omitted is not None:
                print(f"{file.omitted.count} tensors have a type that safetensors lacks", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])

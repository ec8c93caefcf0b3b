"""Push a model under a tag, and fail if parts of it are missing or damaged.

python push_checked.py http://127.0.0.1:8000 model.onnx demo:1
"""

import sys

from protoslice import Client


def main(url: str, path: str, tag: str) -> None:
    """Push the model at `path`; the service refuses a model that is incomplete or damaged."""
    with Client(url) as client:
        pushed = client.push(path, tags=[tag], strict=True)
        print(f"{tag}: {pushed.store.id}, {pushed.sent} bytes sent")


if __name__ == "__main__":
    main(*sys.argv[1:])

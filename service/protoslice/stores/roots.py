"""Which file of an upload is the root proto."""

from __future__ import annotations

from collections.abc import Sequence

from protoslice.errors import InvalidInput, NotFound
from protoslice.stores.receive import Received

__all__ = ["choose_root"]

_NAMES = (
    "saved_model.cpb",
    "saved_model.pb",
    "saved_model.pbtxt",
    "__model__",
    "__model__.json",
    "Data/com.apple.CoreML/model.mlmodel",
)
_ENDINGS = (".cpb", ".onnx", ".pdmodel", ".mlmodel", ".caffemodel", ".index")


def choose_root(files: Sequence[Received], wanted: str | None) -> Received:
    """The root of `files`: the one at the path `wanted`, else the one whose name or content says so best."""
    if not files:
        raise InvalidInput("the upload holds no file")
    if wanted is not None:
        found = next((file for file in files if file.info.path == wanted), None)
        if found is None:
            raise NotFound(f"the upload holds no file {wanted!r}, which is to be its root")
        return found
    return min(files, key=_rank)


def _rank(file: Received) -> tuple[int, int, int, str]:
    """What sorts the likeliest root first: known names near the top, then what looks like a proto, then the largest."""
    path = file.info.path
    named = next((i for i, name in enumerate(_NAMES) if path == name or path.endswith("/" + name)), None)
    if named is None:
        ending = next((i for i, ending in enumerate(_ENDINGS) if path.endswith(ending)), None)
        named = len(_NAMES) + (len(_ENDINGS) if ending is None else ending)
    looks = {"proto": 0, "riegeli": 0, "text": 1, "json": 1, "table": 1}.get(file.detection.kind, 2)
    return named if looks < 2 else 100, looks, -file.info.size, path

"""Requests for each view of a store, as the table of calls has them."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple
from urllib.parse import unquote

from tests.support.calls import READING

from protoslice.server.api.view_router import ViewRoutes
from protoslice.server.api.views import VIEWS, View

FILE: Final = "dir/mödel.onnx"
STREAM: Final = {"words": b"\x05hello\x05world"}
"""A stream of two records, in the same store as the model."""
WITHOUT_ROOT: Final = {"files/{path}", "archive.tar", "records", "records/{n}"}
"""Views that a store without a root proto has too."""
FOR_EVER: Final = {"files/{path}", "metadata", "chunks/{n}", "merge"}
"""Views whose bytes no later program may change."""
BY_BYTES: Final = {"safetensors", "safetensors/{shard}"}
"""Views whose entity tag is made of their bytes."""
_NAMES: Final = {"file": FILE, "name": "path:graph.initializer[1]", "field": "graph"}
_OF_STREAM: Final = "file=words&framing=delimited"


class Tag(Enum):
    """What the entity tag of a view is made of."""

    STORE = auto()
    """What the store's id decides about: the bytes stay the same for ever."""
    VERSION = auto()
    """The same, and a version: a later program may give other bytes under another tag."""
    BYTES = auto()
    """The bytes, which a later program may change."""


class ViewCase(NamedTuple):
    """A request for a view of a store with a model in ONNX, called `FILE`, and `STREAM`."""

    path: str
    """Path and query below the store."""
    accept: str = "*/*"

    @property
    def view(self) -> View:
        """The view that the path names."""
        found = ViewRoutes(VIEWS).find(f"/v1/stores/any/{self.path.partition('?')[0]}")
        assert found is not None, self.path
        return found.view

    @property
    def tag(self) -> Tag:
        """What the entity tag is made of."""
        if self._name in BY_BYTES:
            return Tag.BYTES
        return Tag.STORE if self._name in FOR_EVER and self.accept == "*/*" else Tag.VERSION

    @property
    def needs_root(self) -> bool:
        """False if a store without a root proto has it too."""
        return self._name not in WITHOUT_ROOT

    @property
    def _name(self) -> str:
        return self.view.path.removeprefix("/v1/stores/{ref}/").replace(":path}", "}")


def _cases() -> list[ViewCase]:
    """Requests of the table for views: every path, and of each view the first query."""
    found = dict[str, ViewCase]()
    views = {f"GET {view.path}" for view in VIEWS}
    for call in READING:
        of, _, path = call.target.partition("}/")
        if call.method != "GET" or call.route not in views or call.refused is not None or "={name}" in path:
            continue  # tensors have other names in each of the models
        key = call.route if "?" in path else path
        if of == "/v1/stores/{store":
            found.setdefault(key, ViewCase(unquote(path.format_map(_NAMES))))
        elif of == "/v1/stores/{stream":
            found.setdefault(key, ViewCase(f"{path}{'&' if '?' in path else '?'}{_OF_STREAM}"))
    return [*found.values()]


PLAIN: Final = (
    *_cases(),
    ViewCase("chunks/1"),
    ViewCase("merge?omit_larger_than=1KiB"),
    ViewCase("tensors/path:graph.initializer[1]?format=npy"),
)
"""Requests for the bytes themselves."""
CASES: Final = (
    *PLAIN,
    ViewCase("metadata", accept="application/json"),
    ViewCase("merge", accept="application/json"),
    ViewCase("merge", accept="text/plain"),
)

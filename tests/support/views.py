"""Table of views: how tests ask for each of them. A new view gets its cases here."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from protoslice.server.api.view_router import ViewRoutes
from protoslice.server.api.views import VIEWS, View
from protoslice.serving import OpenStore, Representation

FILE: Final = "dir/mödel.onnx"
STREAM: Final = {"words": b"\x05hello\x05world"}
"""A stream of two records, in the same store as the model."""


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
    tag: Tag = Tag.STORE
    needs_root: bool = True
    """False if a store without a root proto has it too."""
    everywhere: bool = False
    """True if every store with a root proto has it: tests of stores read it from all of theirs."""

    @property
    def view(self) -> View:
        """The view that the path names."""
        return self._found()[0]

    async def of(self, store: OpenStore) -> Representation:
        """Return the view of a store."""
        view, rest = self._found()
        query = view.parameters.read(self.path.partition("?")[2].encode())
        return await view.select(*view.arguments(store, rest, query))

    def _found(self) -> tuple[View, str]:
        found = ViewRoutes(VIEWS).find(f"/v1/stores/any/{self.path.partition('?')[0]}")
        assert found is not None, self.path
        return found.view, found.rest


CASES: Final = (
    ViewCase(f"files/{FILE}", needs_root=False),
    ViewCase("archive.tar", tag=Tag.VERSION, needs_root=False, everywhere=True),
    ViewCase("metadata", everywhere=True),
    ViewCase("metadata", accept="application/json", tag=Tag.VERSION),
    ViewCase("chunks/0"),
    ViewCase("chunks/1"),
    ViewCase("merge", everywhere=True),
    ViewCase("merge", accept="application/json", tag=Tag.VERSION),
    ViewCase("merge", accept="text/plain", tag=Tag.VERSION),
    ViewCase("merge?path=graph"),
    ViewCase("merge?omit_larger_than=1KiB", everywhere=True),
    ViewCase("cpb", tag=Tag.VERSION, everywhere=True),
    ViewCase("records?file=words&framing=delimited", tag=Tag.VERSION, needs_root=False),
    ViewCase("records/0?file=words&framing=delimited", tag=Tag.VERSION, needs_root=False),
    ViewCase("tensors/path:graph.initializer[1]", tag=Tag.VERSION),
    ViewCase("tensors/path:graph.initializer[1]?format=npy", tag=Tag.VERSION),
    ViewCase("safetensors", tag=Tag.BYTES),
    ViewCase("safetensors/model.safetensors", tag=Tag.BYTES),
    ViewCase("onnx/model.onnx", tag=Tag.VERSION),
    ViewCase("onnx/weights.bin", tag=Tag.VERSION),
    ViewCase("onnx/single.onnx", tag=Tag.VERSION),
)
PLAIN: Final = tuple(case for case in CASES if case.accept == "*/*")
"""Cases that ask for the bytes themselves."""

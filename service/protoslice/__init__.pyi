from protoslice.client import AsyncClient as AsyncClient
from protoslice.client import Client as Client
from protoslice.errors import ProtosliceError as ProtosliceError
from protoslice.facts import Node as Node
from protoslice.library.models import LocalModel as LocalModel
from protoslice.library.opening import open_proto as open
from protoslice.library.proto import Chunk as Chunk
from protoslice.library.proto import Large as Large
from protoslice.library.proto import Proto as Proto
from protoslice.library.proto import Split as Split
from protoslice.library.proto import View as View
from protoslice.models import RemoteModel as RemoteModel
from protoslice.models import open_model as open_model
from protoslice.sources.ropes import Rope as Rope
from protoslice.streams import Records as Records
from protoslice.streams import open_records as records
from protoslice.tensors.arrays import LazyArray as LazyArray

__all__ = [
    "AsyncClient",
    "Chunk",
    "Client",
    "Large",
    "LazyArray",
    "LocalModel",
    "Node",
    "Proto",
    "ProtosliceError",
    "Records",
    "RemoteModel",
    "Rope",
    "Split",
    "View",
    "__version__",
    "open",
    "open_model",
    "records",
]

__version__: str

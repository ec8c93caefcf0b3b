"""The client of a service: `Client`, and `AsyncClient` with the same methods. See `docs/client.md`."""

from protoslice.client.asynchronous import AsyncClient
from protoslice.client.bodies import Pushable
from protoslice.client.cache import Cache
from protoslice.client.client import Client, ClientOptions
from protoslice.client.download import Downloaded, Progress
from protoslice.client.model import Chunk, File, Node, Piece, Pushed, Removed, Restored, Schema, Store, Tag, Tensor
from protoslice.client.push import PushOptions
from protoslice.client.remote import Remote

__all__ = [
    "AsyncClient",
    "Cache",
    "Chunk",
    "Client",
    "ClientOptions",
    "Downloaded",
    "File",
    "Node",
    "Piece",
    "Progress",
    "PushOptions",
    "Pushable",
    "Pushed",
    "Remote",
    "Removed",
    "Restored",
    "Schema",
    "Store",
    "Tag",
    "Tensor",
]

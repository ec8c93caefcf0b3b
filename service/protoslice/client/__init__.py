"""The client of a service: `Client`, and `AsyncClient`, which has the same methods as coroutines.

See `docs/how-to/integrate/python.md`.
"""

from protoslice.client.asynchronous import AsyncClient
from protoslice.client.client import Client
from protoslice.client.download.cache import Cache
from protoslice.client.download.files import Downloaded, Progress
from protoslice.client.download.remote import Remote
from protoslice.client.options import ClientOptions, GraphOptions
from protoslice.client.upload.bodies import Pushable
from protoslice.client.upload.push import Pushed, PushOptions, RegisterOptions
from protoslice.facts import (
    ChunkEntry,
    Damage,
    File,
    GraphEdge,
    GraphEntry,
    GraphNode,
    ModelReport,
    Neighbourhood,
    Node,
    Piece,
    Removed,
    RepositorySummary,
    RepositoryVersion,
    Restored,
    Schema,
    Signature,
    SignatureTensor,
    Store,
    Tag,
    TensorEntry,
)

__all__ = [
    "AsyncClient",
    "Cache",
    "ChunkEntry",
    "Client",
    "ClientOptions",
    "Damage",
    "Downloaded",
    "File",
    "GraphEdge",
    "GraphEntry",
    "GraphNode",
    "GraphOptions",
    "ModelReport",
    "Neighbourhood",
    "Node",
    "Piece",
    "Progress",
    "PushOptions",
    "Pushable",
    "Pushed",
    "RegisterOptions",
    "Remote",
    "Removed",
    "RepositorySummary",
    "RepositoryVersion",
    "Restored",
    "Schema",
    "Signature",
    "SignatureTensor",
    "Store",
    "Tag",
    "TensorEntry",
]

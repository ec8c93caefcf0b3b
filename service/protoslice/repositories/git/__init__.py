"""Repositories as git reads them."""

from protoslice.repositories.git.attributes import is_plain
from protoslice.repositories.git.history import GitHistory, plain_ids
from protoslice.repositories.git.objects import blob_id, pointer_of

__all__ = ["GitHistory", "blob_id", "is_plain", "plain_ids", "pointer_of"]

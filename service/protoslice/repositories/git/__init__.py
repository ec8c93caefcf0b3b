"""Repositories as git reads them."""

from protoslice.repositories.git.history import GitHistory, plain_ids
from protoslice.repositories.git.rule import is_plain

__all__ = ["GitHistory", "is_plain", "plain_ids"]

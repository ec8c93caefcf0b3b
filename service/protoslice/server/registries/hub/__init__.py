"""Hugging Face hub: the protocol of its clients, which send the token as Bearer, over repositories."""

from protoslice.server.registries.hub import git, lfs, lfs_parts, links, reading, writing, xet
from protoslice.server.registries.hub.paths import spelled

__all__ = ["ROUTERS", "spelled"]

ROUTERS = (reading.router, writing.router, lfs.router, lfs_parts.router, xet.router, git.router, links.router)

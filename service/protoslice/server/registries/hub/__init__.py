"""Hugging Face hub: the protocol of its clients, which send the token as Bearer, over repositories."""

from protoslice.server.registries.hub import git, lfs, lfs_parts, links, listing, managing, reading, writing, xet
from protoslice.server.registries.hub.paths import spelled

__all__ = ["ROUTERS", "spelled"]

ROUTERS = tuple(each.router for each in (listing, managing, reading, writing, lfs, lfs_parts, xet, git, links))

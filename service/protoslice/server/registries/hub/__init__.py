"""The protocol of Hugging Face clients, served from repositories. Clients send the token as Bearer."""

from protoslice.server.registries.hub import commits, files, git, lfs, repositories, xet
from protoslice.server.registries.hub.paths import spelled

__all__ = ["ROUTERS", "spelled"]

ROUTERS = (
    repositories.lists, repositories.router, files.router, commits.router, lfs.router, lfs.part_router, xet.router,
    git.router, repositories.pages,
)  # fmt: skip

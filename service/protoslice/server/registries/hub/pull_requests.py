"""Refusal of pull requests, which the service does not have."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Query

from protoslice.errors import Unsupported

NO_DISCUSSIONS: Final = (
    "Pull requests are not supported here, and nothing was stored: create a branch and upload to it, with "
    "`--revision BRANCH` or `revision=`"
)


async def _refuse(create_pr: Annotated[bool, Query()] = False) -> None:
    if create_pr:
        raise Unsupported(NO_DISCUSSIONS)


NO_PULL_REQUESTS: Final = Depends(_refuse)
"""Refuse `create_pr` before the body of a commit is read."""

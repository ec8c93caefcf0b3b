"""Refusal of pull requests, which the service does not have."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Query

from protoslice.errors import Unsupported
from protoslice.server.problems import HttpProblem
from protoslice.server.registries.hub.failures import failure_of

_DETAIL: Final = (
    "Pull requests are not supported here, and nothing was stored: create a branch and upload to it, with "
    "`--revision BRANCH` or `revision=`"
)


def refusal() -> HttpProblem:
    """Problem of a request for a pull request or a discussion."""
    return failure_of(Unsupported(_DETAIL))


async def _refuse(create_pr: Annotated[bool, Query()] = False) -> None:
    if create_pr:
        raise refusal()


NO_PULL_REQUESTS: Final = Depends(_refuse)
"""Refuse `create_pr` before the body of a commit is read."""

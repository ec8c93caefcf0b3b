"""What handlers work with: the stores and what belongs to this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from protoslice.server.metrics import Metrics
from protoslice.server.problems import DRAINING, HttpProblem
from protoslice.server.rendering import Renderer
from protoslice.server.settings import Settings
from protoslice.stores import Stores

__all__ = ["Given", "Services", "given"]


@dataclass(slots=True)
class Services:
    """One application's parts; `stores` and `renderer` are there from start-up to shutdown."""

    settings: Settings
    metrics: Metrics = field(default_factory=Metrics)
    opened: Stores | None = None
    rendering: Renderer | None = None
    draining: bool = False
    uploads: int = 0

    @property
    def stores(self) -> Stores:
        """The stores."""
        if self.opened is None:
            raise HttpProblem(DRAINING, "the service is starting or has ended", headers={"retry-after": "1"})
        return self.opened

    @property
    def renderer(self) -> Renderer:
        """The renderer."""
        if self.rendering is None:
            raise HttpProblem(DRAINING, "the service is starting or has ended", headers={"retry-after": "1"})
        return self.rendering


def given(request: Request) -> Services:
    """The services of the application that serves `request`."""
    services: Services = request.app.state.services
    return services


Given = Annotated[Services, Depends(given)]

"""How uvicorn runs the service."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp

from protoslice.server.middleware.clients import Clients
from protoslice.server.middleware.cors import standing_headers
from protoslice.server.settings import Settings
from protoslice.server.transport.protocol import Answerer, ConnectionLimits, guarded

__all__ = ["uvicorn_config"]


def uvicorn_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """The configuration: our protocol and limits, our own log lines instead of uvicorn's, no websockets."""
    limits = ConnectionLimits(
        header_timeout_seconds=settings.header_timeout_seconds,
        max_header_bytes=settings.max_header_bytes,
        max_connections=settings.max_connections,
        clients=Clients(settings),
        send_timeout_seconds=settings.send_timeout_seconds,
        send_min_bytes_per_second=settings.send_min_bytes_per_second,
    )
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=guarded(limits, app if isinstance(app, Answerer) else None),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        headers=standing_headers(settings.cors_origins),
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.drain_seconds,
    )

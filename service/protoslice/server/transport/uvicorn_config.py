"""Configuration of uvicorn for the service."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp

from protoslice.server.app import Application
from protoslice.server.request.clients import Clients
from protoslice.server.request.cors import standing_headers
from protoslice.server.settings import Settings
from protoslice.server.transport.fastpath import FastPath
from protoslice.server.transport.protocol import Answerer, ConnectionLimits, guarded


def fast_path(app: Application) -> Answerer | None:
    """The fast path of `app`; None where requests get spans, which the fast path does not make."""
    return None if app.traced else FastPath(app.views, app.policy, app.recorder, app.services).answer


def uvicorn_config(app: ASGIApp, settings: Settings, *, answerer: Answerer | None = None) -> uvicorn.Config:
    """The configuration: our protocol and limits, our own log lines instead of uvicorn's, no websockets.

    `answerer` may answer requests while they are parsed; None is the fast path of the application.
    """
    if answerer is None and isinstance(app, Application):
        answerer = fast_path(app)
    limits = ConnectionLimits(
        header_timeout_seconds=settings.header_timeout_seconds,
        max_header_bytes=settings.max_header_bytes,
        max_connections=settings.max_connections,
        clients=Clients(settings),
        send_timeout_seconds=settings.send_timeout_seconds,
        send_min_bytes_per_second=settings.send_min_bytes_per_second,
        public_path=settings.public_path,
    )
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=guarded(limits, answerer, app.recorder.record if isinstance(app, Application) else None),
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

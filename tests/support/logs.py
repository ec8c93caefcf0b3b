"""Logs of the service in this process: whoever configures them here puts them back as they were."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO

from protoslice.server.telemetry.logs import AUDIT, REQUESTS, configure_logs


@contextmanager
def logs_to(out: StringIO, form: str, level: str) -> Iterator[Callable[[], None]]:
    """Log lines go to `out` meanwhile; gives the final flush."""
    names = ("protoslice", REQUESTS, "uvicorn", "opentelemetry", AUDIT, "python_multipart")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    try:
        yield configure_logs(form, level, out)
    finally:
        for logger, level_before, propagate, handlers in before:
            logger.setLevel(level_before)
            logger.propagate, logger.handlers[:] = propagate, handlers

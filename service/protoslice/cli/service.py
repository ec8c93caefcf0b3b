"""Settings of the service, for verbs that need them; the web stack is imported when such a verb runs."""

from __future__ import annotations

import getpass
import os
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protoslice.database import Database
    from protoslice.server.settings import Settings
    from protoslice.storage import Storage


def check_environment() -> None:
    """Raise on names in the environment that look like settings and are none, if the service is installed."""
    try:
        from protoslice.server import settings
    except ImportError:
        return
    settings.check_environment()


def service_settings(**given: Any) -> Settings:
    """The settings of the environment, with what is `given` in front; nothing is given where it is None."""
    from protoslice.server.settings import read_settings

    return read_settings({name: value for name, value in given.items() if value is not None})


def opened(settings: Settings) -> AbstractAsyncContextManager[tuple[Storage, Database]]:
    """Open the storage and the catalogue of the settings, which exist and belong together."""
    from protoslice.catalog.marker import open_both

    return open_both(settings.storage, settings.plain_storage_options(), settings.database)


def system_user() -> str:
    """Name of the system's user; its number if it has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"

"""Bodies of requests while they are sent: told apart are their own failures and those of the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["outgoing"]


@contextmanager
def outgoing(content: bytes | Iterator[bytes] | None) -> Iterator[bytes | Iterator[bytes] | None]:
    """`content` for one request. An iterator is closed at the end, and its errors are raised as they are.

    What breaks off a request leaves an iterator where it stands: files that it holds open and threads that work for it
    would live on with the traceback.
    """
    if content is None or isinstance(content, bytes):
        yield content
        return
    try:
        yield _pieces(content)
    except _Failed as failed:
        error = failed.error
    else:
        return
    finally:
        _close(content)
    raise error


class _Failed(Exception):
    """No `OSError` and none of httpx's, which would be taken for failures of the network."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _pieces(content: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from content
    except Exception as error:
        raise _Failed(error) from error


def _close(content: Any) -> None:
    if hasattr(content, "close"):
        content.close()

"""Bodies of requests while they are sent: told apart are their own failures and those of the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
    body = _Body(content)
    try:
        yield body
    except _Failed:
        pass
    else:
        return
    finally:
        if hasattr(content, "close"):
            content.close()
    raise body.taken()


class _Failed(Exception):
    """No `OSError` and none of httpx's, which would be taken for failures of the network."""


class _Body(Iterator[bytes]):
    def __init__(self, content: Iterator[bytes]) -> None:
        self._content = content
        self._failure: Exception | None = None

    def __next__(self) -> bytes:
        try:
            return next(self._content)
        except StopIteration:
            raise
        except Exception as error:
            self._failure = error
        raise _Failed  # outside of the handler: an error that knows the other would hold all that its frames hold

    def taken(self) -> Exception:
        """The error that the content raised; the body lets go of it."""
        failure, self._failure = self._failure, None
        assert failure is not None, "nothing else raises this"
        return failure

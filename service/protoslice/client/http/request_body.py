"""Request bodies whose own exceptions are told apart from failures of the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def request_body(content: bytes | Iterator[bytes] | None) -> Iterator[bytes | Iterator[bytes] | None]:
    """Context with `content` for one request; exceptions of an iterator are raised unchanged at the end.

    An iterator is closed at the end of the request: files and threads behind it would otherwise live on with the
    traceback of a broken request.
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
    """No `OSError` and no httpx exception, which would be taken for failures of the network."""


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
        raise _Failed  # outside of the handler: a chained error would keep alive all that its frames hold

    def taken(self) -> Exception:
        """The exception that the content raised, which the body no longer holds."""
        failure, self._failure = self._failure, None
        assert failure is not None, "nothing else raises this"
        return failure

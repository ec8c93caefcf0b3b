"""Models by name: in a local file or on a service, the same to whoever looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from protoslice.cli.models.subjects import Subject
from protoslice.cli.models.types import RootType
from protoslice.errors import Unsupported
from protoslice.references import is_address


@contextmanager
def opened_subject(
    name: str, root: RootType, *, close_look: bool = False, tags: Sequence[str] | None = None
) -> Iterator[Subject]:
    """The model that `name` means; with `close_look` small parts of small files are told apart too.

    With `tags`, its tensors are those of the meta graph with exactly these.
    """
    if not is_address(name):
        from protoslice.cli.models.local import LocalSubject

        with LocalSubject.opened(name, root, close_look=close_look, tags=tags) as local:
            yield local
        return
    if root.given:
        raise Unsupported("--type and --schema are only for files: the type of a store is fixed when it is created")
    from protoslice.cli.models.remote import RemoteSubject

    with RemoteSubject.opened(name, tags) as remote:
        yield remote

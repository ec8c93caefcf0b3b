"""Layout marker of a storage, and its check."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from protoslice.errors import Conflict, NotFound, Unsupported
from protoslice.storage import Storage
from protoslice.stores.layout import keys

MARK: Final = b'{"layout":3}'
SECOND: Final = b'{"layout":2}'
"""Layout whose index entries bear no tags; served as it is, beside programs that know no other."""
FIRST: Final = b'{"layout":1}'
UPGRADING: Final = b'{"layout":3,"upgrading":1}'
_UPGRADING: Final = frozenset({UPGRADING, b'{"layout":2,"upgrading":1}'})
UPGRADABLE: Final = frozenset({FIRST, SECOND, MARK}) | _UPGRADING


async def check_layout(storage: Storage, *, mark: bool) -> bool:
    """Check the layout marker, which `mark` writes if absent; True where index entries bear tags.

    Raises `NotFound` for an unmarked storage, `Unsupported` for another layout or an unfinished upgrade.
    """
    if mark:
        with suppress(Conflict):
            await storage.put_if_absent(keys.MARKER, MARK)
    try:
        found = (await storage.get(keys.MARKER)).data
    except NotFound:
        raise NotFound("This storage contains no stores") from None
    if found == FIRST:
        raise Unsupported(
            "This storage was created by Protoslice 0.1: stop all services that use it, then run "
            "`protoslice storage upgrade` once (large objects are not moved)"
        )
    if found in _UPGRADING:
        raise Unsupported("An upgrade of this storage was interrupted: run `protoslice storage upgrade` again")
    if found not in {MARK, SECOND}:
        raise Unsupported("this storage was laid out by a later version of protoslice: use that one")
    return found == MARK

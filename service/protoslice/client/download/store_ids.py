"""Recomputed ids: a store requested by id is verified against that id."""

from __future__ import annotations

import re
from typing import Final

from protoslice.errors import IntegrityError
from protoslice.facts import UNKNOWN, Store
from protoslice.versions import Policy, is_id_of

_ID: Final = re.compile("[0-9a-f]{12,64}")


def verified_store(store: Store, ref: str) -> Store:
    """`store`, verified: its id begins with `ref` if that is an id, and its files and policy have that id.

    `IntegrityError` otherwise. A tag may point at any store, and files registered in place have no digest to verify.
    """
    if _ID.fullmatch(ref) and not store.id.startswith(ref):
        raise IntegrityError(f"The service returned store {store.id} instead of {ref}")
    files = [(file.path, file.size, file.sha256) for file in store.files if file.sha256 is not None]
    policy = Policy(
        root=store.root,
        type=None if store.type == UNKNOWN else store.type,
        min_chunk=store.min_chunk,
        max_chunk=store.max_chunk,
        schema=store.schema,
        planner=store.planner,
        rules=store.rules,
    )
    if len(files) == len(store.files) and not is_id_of(store.id, files, policy):
        raise IntegrityError(f"The files listed for store {store.id} do not match its id")
    return store

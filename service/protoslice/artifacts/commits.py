"""Tags of OCI as refs of the repository of that name; stores of manifests are their commits."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from protoslice.artifacts.repository import ArtifactRepository
from protoslice.catalog.artifacts import StoredManifest
from protoslice.catalog.syntax import ManifestUnknown, NameInvalid, is_commit, listed_name
from protoslice.concurrency.gather import map_concurrently
from protoslice.repositories import MAIN, Commit, Ref
from protoslice.stores import Stores

_LATEST: Final = "latest"
"""Tag that clients of OCI mean when they name none, as those of the hub mean `main`."""
_PAGE: Final = 250
_OF_A_DIGEST: Final = re.compile(r"sha(256|512)-[0-9a-f]{64}")
"""Tags of signatures (cosign) and referrers, which belong to another manifest and are no revisions of a model."""


class ArtifactCommits:
    """Implements `PushedTags` over the manifests that have files."""

    def __init__(self, stores: Stores, name: str) -> None:
        self._artifacts: ArtifactRepository | None = None
        with suppress(NameInvalid):
            self._artifacts = ArtifactRepository(stores, listed_name(name))

    async def find(self, revision: str) -> Commit | None:
        """The commit of a tag or of the 40 digits of an id; `main` is the tag `latest`."""
        if self._artifacts is None:
            return None
        if is_commit(revision):
            pushed = await self._artifacts.table.of_store(revision)
            return None if pushed is None else _commit(pushed)
        with suppress(ManifestUnknown):
            return _commit(await self._artifacts.manifest(_LATEST if revision == MAIN else revision))
        return None

    async def refs(self) -> AsyncIterator[Ref]:
        """Tags by name, and `main` for `latest`."""
        found, last = await self.page(limit=_PAGE, after=None)
        while found or last is not None:
            for ref in found:
                yield ref
            found, last = ([], None) if last is None else await self.page(limit=_PAGE, after=last)
        if (latest := await self.find(MAIN)) is not None:
            yield Ref("heads", MAIN, latest)

    async def head(self) -> Ref | None:
        """The tag `latest`, or the one set last; None when neither has files."""
        if self._artifacts is None:
            return None
        for tag in (_LATEST, await self._artifacts.table.newest_tag()):
            if tag is not None and (commit := await self.find(tag)) is not None:
                return Ref("tags", tag, commit)
        return None

    async def page(self, *, limit: int, after: str | None) -> tuple[list[Ref], str | None]:
        """A page of the tags that have files, by name, and the last tag looked at when there are more."""
        if self._artifacts is None:
            return [], None
        tags, more = await self._artifacts.tags(limit=limit, after=after)
        last, tags = tags[-1] if more else None, [tag for tag in tags if not _OF_A_DIGEST.match(tag)]
        found = zip(tags, await map_concurrently(self.find, tags), strict=True)
        return [Ref("tags", tag, commit) for tag, commit in found if commit is not None], last

    async def exist(self) -> bool:
        """True when there is a tag."""
        return self._artifacts is not None and bool((await self._artifacts.tags(limit=1, after=None))[0])


def _commit(manifest: StoredManifest) -> Commit | None:
    """The state that a manifest names; None for one without files."""
    if manifest.store is None:
        return None
    return Commit(store=manifest.store, time=manifest.time or Commit().time)

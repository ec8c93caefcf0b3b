"""Actions that commit to a branch which others commit to as well, as clients of repositories do."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass

from tests.stores.simulation.clients import Action, Client, pieces
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Ledger, Violation
from tests.stores.simulation.sending import taken_in

from protoslice.errors import Conflict
from protoslice.repositories import MAIN, Author, Commit, Repositories, Repository
from protoslice.repositories.faults import NoRepository, RepositoryExists
from protoslice.stores import Stores

NAME = "team/model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Push(Action):
    """Make a content the head of the branch, unless another client moves the branch meanwhile."""

    content: Content

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        await committed(client, self.content)


async def committed(client: Client, content: Content, *, staged: bool = False) -> None:
    """Commit a content, and note what comes of it; `staged` files have been sent before."""
    made: list[Commit] = []

    async def push(stores: Stores) -> tuple[str, bool]:
        commit = await _pushed(await repository_in(stores), content, staged=staged)
        if commit.store is None:
            raise Violation("a store is what was sent", f"the commit of {content.name} has no files")
        made.append(commit)
        return commit.store, False

    if await taken_in(client, content, (), "push", push, shares=True):
        client.ledger.commits += [commit.place for commit in made if commit.place is not None]


async def check_history(ledger: Ledger, stores: Stores) -> None:
    """Raise a `Violation` unless one line of commits holds every commit that a client was told of."""
    if not ledger.commits:
        return
    repository = await Repositories(stores).get(NAME)
    head, cursor, line = await repository.commit(MAIN), None, list[Commit]()
    while True:
        page = await repository.history(head, limit=2, cursor=cursor)
        line += page.items
        cursor = page.next
        if cursor is None:
            break
    if lost := set(ledger.commits) - {commit.place for commit in line}:
        raise Violation("no commit is lost", f"{len(lost)} of {len(ledger.commits)} are in no history")
    if [commit.number for commit in line] != list(range(len(line), 0, -1)):
        raise Violation("a history is one line", f"{[commit.number for commit in line]}")
    if strange := [commit.id for commit in line if commit.store not in ledger.contents]:
        raise Violation("a history shows what was sent", f"{strange}")


async def repository_in(stores: Stores) -> Repository:
    """The repository that all clients commit to."""
    repositories = Repositories(stores)
    try:
        return await repositories.get(NAME)
    except NoRepository:
        with suppress(RepositoryExists):
            return await repositories.create(NAME)
    return await repositories.get(NAME)


async def _pushed(repository: Repository, content: Content, *, staged: bool) -> Commit:
    """The commit after the present head; `Outrun` when another comes first."""
    head = await repository.commit(MAIN)
    async with await repository.change(MAIN, parent=head.id) as change:
        for path in (await repository.files(head)).keys() - content.files.keys():
            change.delete(path)
        for path, data in content.files.items():
            if staged and data:
                upload = await repository.staged.find(hashlib.sha256(data).hexdigest())
                if upload is None:
                    raise Conflict("the file has expired")
                await change.take(path, upload)
            else:
                await change.put(path, pieces(data))
        return await change.commit(Author(content.name))

"""The conformance tests of listings."""

from __future__ import annotations

from protoslice.errors import InvalidInput
from protoslice.storage.interface import Storage
from protoslice.storage.keys import ObjectKey
from protoslice.testing.suite import Raw, Suite, conforms, equal, everything, raises

# The keys are in the order of their UTF-8 bytes, so the slash after the name of a folder counts too.
ORDERED = ("A/z", "B", "a", "a+b/c", "a-b", "a.b/x/y/z", "a/b", "a0", "aa/é", "aa/日", "b/c/d/e/f/g", "z~", "é", "日/a")
SAFE = tuple(name for name in ORDERED if name != "a")  # backends need not hold both "a" and "a/b"


async def fill(raw: Raw, names: tuple[str, ...]) -> None:
    """Create an object with each name."""
    for name in names:
        await raw.set(ObjectKey(name), name.encode())


async def texts(storage: Storage, prefix: str | None = None, after: str | None = None) -> list[str]:
    """Return the names on one large page, which must be the last page."""
    below = None if prefix is None else ObjectKey(prefix)
    page = await storage.list(below, after=None if after is None else ObjectKey(after))
    equal(page.after, None, "nothing is left")
    return [str(item.key) for item in page.items]


class ListingConformance(Suite):
    """Tests that check whether listings contain each object once, in key order, without gaps between pages."""

    @conforms
    async def test_an_empty_storage_lists_nothing(self, storage: Storage, raw: Raw) -> None:
        equal(await texts(storage), [])
        equal(await texts(storage, prefix="no/such"), [])

    @conforms
    async def test_keys_come_in_order_of_their_bytes(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, SAFE[::-1])
        equal(await texts(storage), list(SAFE))

    @conforms
    async def test_a_prefix_is_a_folder(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, SAFE)
        equal(await texts(storage, prefix="a"), ["a/b"])
        equal(await texts(storage, prefix="aa"), ["aa/é", "aa/日"])
        equal(await texts(storage, prefix="a.b/x"), ["a.b/x/y/z"])
        equal(await texts(storage, prefix="B"), [], "an object is not below itself")

    @conforms
    async def test_pages_of_any_size_make_the_whole(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, SAFE)
        for limit in (1, 2, 3, len(SAFE) - 1, len(SAFE), len(SAFE) + 1):
            equal([str(item.key) for item in await everything(storage, limit)], list(SAFE), f"pages of {limit}")

    @conforms
    async def test_a_page_is_no_longer_than_asked_and_says_what_is_left(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, SAFE)
        page = await storage.list(limit=3)
        equal(([str(item.key) for item in page.items], page.after), (list(SAFE[:3]), ObjectKey(SAFE[2])))
        page = await storage.list(limit=len(SAFE))
        equal((len(page.items), page.after), (len(SAFE), None))

    @conforms
    async def test_listing_begins_behind_any_key(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, SAFE)
        for after in (
            "A",
            "A/z",
            "A/zz",
            "a",
            "a-b",
            "a/",
            "a/a",
            "a/b",
            "a.b/x",
            "aa/é",
            "b/c/d/e",
            "zz",
            "日/a",
            "日本",
        ):
            if not after.endswith("/"):
                equal(await texts(storage, after=after), [name for name in SAFE if name > after], f"behind {after!r}")

    @conforms
    async def test_behind_and_below_combine(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, SAFE)
        equal(await texts(storage, prefix="aa", after="aa/é"), ["aa/日"])
        equal(await texts(storage, prefix="aa", after="A"), ["aa/é", "aa/日"])
        equal(await texts(storage, prefix="aa", after="ab"), [])

    @conforms
    async def test_a_listing_tells_what_stat_tells(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, SAFE[:4])
        for item in (await storage.list()).items:
            found = await storage.stat(item.key)
            equal((item.key, item.size, item.etag), (found.key, found.size, found.etag))

    @conforms
    async def test_a_removed_object_is_not_listed(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, ("f/a", "f/b", "g"))
        await raw.remove(ObjectKey("f/b"))
        equal(await texts(storage), ["f/a", "g"])
        await raw.remove(ObjectKey("f/a"))
        equal(await texts(storage), ["g"])

    @conforms
    async def test_removing_page_by_page_reaches_the_end(self, storage: Storage, raw: Raw) -> None:
        await fill(raw, tuple(f"n/{number:03}/x" for number in range(25)))
        page = await storage.list(limit=4)
        while page.items:
            for item in page.items:
                await storage.delete(item.key)
            page = await storage.list(after=page.items[-1].key, limit=4)
        equal(await texts(storage), [])

    @conforms
    async def test_a_page_of_nothing_is_refused(self, storage: Storage, raw: Raw) -> None:
        for limit in (0, -1):
            with raises(InvalidInput):
                await storage.list(limit=limit)

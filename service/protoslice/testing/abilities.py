"""Conformance tests of a backend's abilities."""

from __future__ import annotations

import mmap

from protoslice.errors import IntegrityError, NotFound, Unsupported
from protoslice.plugins import check_version
from protoslice.storage.interface import INTERFACE, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.testing.suite import Raw, Suite, conforms, equal, raises

KEY = ObjectKey("folder/object.pb")


class AbilitiesConformance(Suite):
    """Declared abilities work; calls for missing ones raise `Unsupported`."""

    @conforms
    async def test_the_interface_is_one_we_know(self, storage: Storage, raw: Raw) -> None:
        check_version("the backend", storage.interface, INTERFACE)

    @conforms
    async def test_an_open_file_outlives_its_name(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, b"0123456789")
        if not storage.abilities.open_file:
            with raises(Unsupported):
                await storage.open_file(KEY)
            return
        file = await storage.open_file(KEY)
        try:
            await storage.put(KEY, b"another")
            await storage.delete(KEY)
            equal((file.stat.size, file.pread(2, 5), file.pread(10, 10)), (10, b"234", b""))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                equal(view[:], b"0123456789")
            with raises(IntegrityError):
                file.pread(5, 11)
        finally:
            file.close()
            file.close()
        with raises(NotFound):
            await storage.open_file(KEY)

    @conforms
    async def test_free_space_is_known_or_said_to_be_unknown(self, storage: Storage, raw: Raw) -> None:
        if storage.abilities.free_space:
            equal(await storage.free_bytes() > 0, True, "some room")
        else:
            with raises(Unsupported):
                await storage.free_bytes()

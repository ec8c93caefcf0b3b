"""Opening of stores: what one needs of a distant storage is asked for side by side, each thing once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.support.counted import CountedBucket
from tests.support.stores import onnx, opened, read, records_apart, upload

from protoslice.storage import ObjectKey

COUNT = 9
FILES: Mapping[str, bytes] = {
    "model.onnx": onnx(30_000),
    **{f"part-{number}": bytes([number]) * 1_500_000 for number in range(COUNT)},
    **{f"small-{number}": bytes([number]) * 100 for number in range(COUNT)},
}


class Distant(CountedBucket):
    """Bucket that notes which objects are read at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.together: list[set[str]] = []
        """Names under way whenever a read begins."""
        self._under_way: list[str] = []

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        """See `Storage.get_range`."""
        name = key.segments[-1]
        self.reads.append(name)
        self._under_way.append(name)
        self.together.append(set(self._under_way))
        try:
            for _ in range(50):  # as many turns of the loop as all the others may need to begin
                await asyncio.sleep(0)
            return await super().get_range(key, start, end, if_etag=if_etag)
        finally:
            self._under_way.remove(name)


@records_apart()
def test_objects_and_records_are_read_side_by_side() -> None:
    async def work() -> None:
        bucket = Distant()
        async with opened(bucket) as stores:
            info = (await upload(stores, FILES)).store
        async with opened(bucket) as stores:
            bucket.reads.clear()
            bucket.together.clear()
            store = await stores.view(info.id)
            sums = {name for name in bucket.reads if name.endswith(".sums")}
            assert len(sums) == COUNT + 1, "those of the large files, and of the pack of all others"
            assert max(bucket.together, key=len) >= sums | {"index", "plan"}
            assert len(bucket.reads) == len(set(bucket.reads)), "each once"
            for path, data in FILES.items():
                assert await read(store.file(path)) == data

    asyncio.run(work())

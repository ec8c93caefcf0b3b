"""The records of a store as a dataset of Ray Data, for computations on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from protoslice.client import Client
from protoslice.client.options import ClientOptions
from protoslice.errors import named_options
from protoslice.facts import RecordsSummary

if TYPE_CHECKING:
    import pyarrow as pa
    import ray.data

_BLOCK: Final = 64 << 20
"""Approximate number of bytes in a block, estimated by the mean size of a record."""
COLUMN: Final = "record"
"""Name of the dataset's only column, which has the bytes of the records."""


@named_options
def dataset(url: str, ref: str, *, block_bytes: int = _BLOCK, **options: Unpack[ClientOptions]) -> ray.data.Dataset:
    """Return the records of a store as a dataset with one column. Each worker reads the blocks that it needs.

    If `ref` is a tag, it is resolved to the store's id at once, so the tag may move later. The workers must be able to
    connect to the service at `url`.
    """
    import ray.data

    with Client(url, **options) as client:
        id = client.store(ref).id
        summary = client.records(id).summary
    source = _datasource(url, id, summary, block_bytes, options)
    found: ray.data.Dataset = ray.data.read_datasource(source, override_num_blocks=max(1, len(source.starts)))
    return found


def _datasource(url: str, id: str, summary: RecordsSummary, block_bytes: int, options: ClientOptions) -> Any:
    """Return the data source.

    Its class is defined in this function, because the base class exists only if Ray is installed.
    """
    import pyarrow as pa
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    mean = summary.size / max(1, summary.count)
    step = max(1, int(block_bytes // max(1, mean)))

    class Records(Datasource):  # type: ignore[misc]
        """A data source whose blocks are runs of consecutive records."""

        starts = range(0, summary.count, step)

        def estimate_inmemory_data_size(self) -> int:
            """Return the size of the whole stream in bytes."""
            return summary.size

        def get_read_tasks(self, parallelism: int, *_: object, **__: object) -> list[Any]:
            """Return one task for each block. The argument `parallelism` is ignored."""
            schema = pa.schema([(COLUMN, pa.binary())])
            tasks = []
            for start in self.starts:
                stop = min(start + step, summary.count)
                told = BlockMetadata(
                    num_rows=stop - start, size_bytes=int((stop - start) * mean), input_files=None, exec_stats=None
                )
                tasks.append(ReadTask(partial(_read, url, id, start, stop, options), told, schema=schema))
            return tasks

    return Records()


def _read(url: str, id: str, start: int, stop: int, options: ClientOptions) -> Iterator[pa.Table]:
    """Yield a block with the records from `start` up to `stop`."""
    import pyarrow as pa

    with Client(url, **options) as client:
        yield pa.table({COLUMN: pa.array(list(client.records(id)[start:stop]), pa.binary())})

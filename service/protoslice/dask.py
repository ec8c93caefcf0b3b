"""The records of a store as a Dask bag, for computations on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

from protoslice.client import Client
from protoslice.client.options import ClientOptions
from protoslice.errors import named_options

if TYPE_CHECKING:
    import dask.bag

_PARTITION: Final = 64 << 20
"""Approximate number of bytes in a partition, estimated by the mean size of a record."""


@named_options
def bag(url: str, ref: str, *, partition_bytes: int = _PARTITION, **options: Unpack[ClientOptions]) -> dask.bag.Bag:
    """Return the records of a store as a bag of `bytes`. Each worker reads the partitions on which it computes.

    If `ref` is a tag, it is resolved to the store's id at once, so the tag may move later. The workers must be able to
    connect to the service at `url`.
    """
    import dask.bag
    from dask.delayed import delayed

    with Client(url, **options) as client:
        id = client.store(ref).id
        summary = client.records(id).summary
    step = max(1, partition_bytes * summary.count // max(1, summary.size))
    read = delayed(_read, pure=True)
    starts = range(0, max(1, summary.count), step)
    found: dask.bag.Bag = dask.bag.from_delayed(  # type: ignore[no-untyped-call]
        [read(url, id, start, start + step, options) for start in starts]
    )
    return found


def _read(url: str, id: str, start: int, stop: int, options: ClientOptions) -> list[bytes]:
    """Return the records from `start` up to `stop`, or up to the end of a shorter stream."""
    with Client(url, **options) as client:
        return list(client.records(id)[start:stop])

"""Records of a store as a dask bag, computed by separate processes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.serve import ServiceProcess
from tests.support.streams import FRAMED, example

import protoslice.dask
from protoslice.client import Client

EXAMPLES = [example(n) for n in range(3000)]


@pytest.mark.parametrize(("partition_bytes", "partitions"), [(1 << 30, 1), (20_000, None)])
def test_a_bag_has_all_records_in_order(service: ServiceProcess, partition_bytes: int, partitions: int | None) -> None:
    with Client(service.url) as client:
        client.push(FRAMED["tfrecord"](EXAMPLES), filename="train.tfrecord", tags=["dask"])
    bag: Any = protoslice.dask.bag(service.url, "dask", partition_bytes=partition_bytes)
    assert bag.npartitions == partitions or (partitions is None and bag.npartitions > 5)
    assert bag.compute(scheduler="processes", num_workers=2) == EXAMPLES
    assert bag.map(len).sum().compute(scheduler="processes", num_workers=2) == sum(map(len, EXAMPLES))


def test_a_bag_stays_with_the_store_that_the_tag_named(service: ServiceProcess) -> None:
    with Client(service.url) as client:
        client.push(FRAMED["tfrecord"](EXAMPLES), filename="a.tfrecord", tags=["moving"])
        bag: Any = protoslice.dask.bag(service.url, "moving")
        client.push(FRAMED["tfrecord"](EXAMPLES[:5]), filename="a.tfrecord", tags=["moving"])
    assert bag.count().compute(scheduler="threads") == 3000

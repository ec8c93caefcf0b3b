"""Calls of engines over records: ArrayRecord, Ray Data and PyTorch, each in a separate process."""

from __future__ import annotations

import os
from tempfile import NamedTemporaryFile
from typing import Any

from tests.clients.calls.engine_records import COUNT, record

from protoslice.client import Client

URL = os.environ["SERVICE"]


def ray_data() -> None:
    """Check that a local cluster has all records in order, and computes over them."""
    import ray

    import protoslice.ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    found: Any = protoslice.ray.dataset(URL, "engines", block_bytes=100_000)
    blocks = found.materialize().num_blocks()
    assert blocks > 5, blocks
    assert found.count() == COUNT
    assert [row["record"] for row in found.take_all()] == [record(number) for number in range(COUNT)]
    pids = {row["pid"] for row in found.map(lambda row: {"pid": os.getpid()}).take_all()}
    assert pids, "blocks were read"
    assert os.getpid() not in pids, "by other processes"
    lengths = found.map(lambda row: {"length": len(row["record"])}).sum("length")
    assert lengths == sum(len(record(number)) for number in range(COUNT))
    ray.shutdown()
    print(f"ray {ray.__version__}: {blocks} blocks, {len(pids)} processes: fine")


def torch_data() -> None:
    """Check that a `DataLoader` takes the records unchanged, in this process and with workers."""
    import torch
    from torch.utils.data import DataLoader

    with Client(URL) as client:
        records: Any = client.records("engines")
        for start in (None, "spawn", "forkserver", "fork"):
            workers: dict[str, Any] = {} if start is None else {"num_workers": 2, "multiprocessing_context": start}
            loader: Any = DataLoader(records, batch_size=256, shuffle=True, collate_fn=list, **workers)
            batches = list(loader)
            assert {len(batch) for batch in batches[:-1]} == {256}
            assert sorted(each for batch in batches for each in batch) == sorted(map(record, range(COUNT)))
            assert [each for batch in batches for each in batch] != list(map(record, range(COUNT)))
    print(f"torch {torch.__version__}: without workers, and with two by spawn, forkserver and fork: fine")


def array_record() -> None:
    """Check that ArrayRecord's reader has all records of a file that the service made, in any order."""
    from array_record.python.array_record_module import ArrayRecordReader

    with Client(URL) as client, NamedTemporaryFile(suffix=".array_record") as file:
        client.download("engines", file.name, view="records", params=[("format", "array_record")])
        reader: Any = ArrayRecordReader(file.name)
        assert reader.num_records() == COUNT
        numbers = range(COUNT - 1, 0, -997)
        assert reader.read([*numbers]) == [*map(record, numbers)]
        assert reader.read_all() == [*map(record, range(COUNT))]
    print("array_record: a file of the service's: fine")


if __name__ == "__main__":
    {"array_record": array_record, "ray": ray_data, "torch": torch_data}[os.environ["ENGINE"]]()

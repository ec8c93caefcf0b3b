"""Tensors of models as arrays of zarr and xarray, by the references of the service."""

from __future__ import annotations

import os
from typing import Any

import httpx
import numpy as np
import xarray
import zarr

from protoslice.client import Client

URL = os.environ["SERVICE"]


def compared(client: Client, ref: str) -> int:
    """Return the number of xarray variables in a model's first groups; each must equal zarr's and our array."""
    url = f"{URL}/v1/stores/{ref}/references.json"
    refs = httpx.get(url).json()["refs"]
    groups = [key.removesuffix(".zgroup").rstrip("/") for key in refs if key.endswith(".zgroup")]
    options: dict[str, Any] = {"fo": url, "remote_protocol": "http"}
    if zarr.__version__ >= "3":
        options["remote_options"] = {"asynchronous": True}
    by_zarr: Any = zarr.open_group("reference://", storage_options=options, mode="r")
    found = 0
    for group in groups[:4]:
        shown = xarray.open_zarr("reference://", group=group, storage_options=options, chunks=None)
        own = [key for key in refs if key.endswith("/.zarray") and key.rpartition("/")[0].rpartition("/")[0] == group]
        assert len(shown) == len(own), (group, list(shown), own)
        for key in shown:
            variable: Any = shown[key]
            array = by_zarr[f"{group}/{key}".lstrip("/")]
            expected = client.tensor(ref, variable.attrs["address"])
            for values in (variable.values, array[...]):
                assert values.shape == expected.shape, (key, values.shape, expected.shape)
                assert values.tobytes() == np.ascontiguousarray(expected).tobytes(), key
            found += 1
    return found


with Client(URL) as client:
    for ref in os.environ["MODELS"].split():
        print(
            f"zarr {zarr.__version__}, xarray {xarray.__version__}: {compared(client, ref)} tensors of {ref} are equal"
        )

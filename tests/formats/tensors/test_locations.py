"""Locations of external data: inside of the folder of the root, and nowhere else."""

from __future__ import annotations

import pytest

from protoslice.errors import CorruptModel
from protoslice.formats.messages import resolve_location


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("v.bin", "m/v.bin"),
        ("./v.bin", "m/v.bin"),
        ("./sub/../sub/v.bin", "m/sub/v.bin"),
        ("sub/../v.bin", "m/v.bin"),
        ("a//b/./v.bin", "m/a/b/v.bin"),
        ("..v.bin", "m/..v.bin"),
        ("...", "m/..."),
    ],
)
def test_locations_inside_of_the_folder_are_followed(location: str, path: str) -> None:
    assert resolve_location("m/model.onnx", location) == path
    assert resolve_location("model.onnx", location) == path.removeprefix("m/")


@pytest.mark.parametrize(
    "location",
    ["../v.bin", "sub/../../v.bin", "a/../../m/v.bin", "/v.bin", "//v.bin", "..", ".", "a/..", "a\\b", "v\0", "", "v/"],
)
def test_other_locations_are_refused(location: str) -> None:
    for root in ("m/model.onnx", "model.onnx", "a/b/model.onnx"):
        with pytest.raises(CorruptModel, match="External data has the location"):
            resolve_location(root, location)

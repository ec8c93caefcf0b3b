"""SavedModels of several meta graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.support.bundles import Variable, bundle

from protoslice import schema

GRAPHS = (("serve",), ("serve", "gpu"), ())
"""Tags of each meta graph."""
VALUES = tuple(np.arange(4, dtype="<f4") + 10 * number for number in range(len(GRAPHS)))
"""Constant of each meta graph."""


def write_meta_graphs(folder: Path) -> Path:
    """Write a SavedModel into `folder`: meta graphs of a constant `w` and one of their own, a variable."""
    model: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    for number, tags in enumerate(GRAPHS):
        graph = model.meta_graphs.add()
        graph.meta_info_def.tags.extend(tags)
        for name in ("w", f"own{number}"):
            tensor = graph.graph_def.node.add(name=name, op="Const").attr["value"].tensor
            tensor.dtype = 1
            tensor.tensor_shape.dim.add(size=4)
            tensor.tensor_content = VALUES[number].tobytes()
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    (folder / "variables").mkdir()
    for name, data in bundle("variables", [Variable("v", 1, (100,), bytes(400))]).items():
        (folder / "variables" / name).write_bytes(data)
    return folder

"""Tensors of one meta graph are chosen by its tags."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.meta_graphs import GRAPHS, VALUES, write_meta_graphs

import protoslice
from protoslice.errors import NotFound, Unsupported


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel of three meta graphs."""
    return write_meta_graphs(tmp_path_factory.mktemp("saved"))


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_a_model_has_the_tensors_of_its_meta_graph_and_the_variables(folder: Path, number: int) -> None:
    with protoslice.open_model(folder) as model:
        found = model.tagged(GRAPHS[number][::-1])
        assert sorted(found) == sorted(["w", f"own{number}", "v"])
        assert np.frombuffer(found.read("w").read(), "<f4").tolist() == VALUES[number].tolist()
        assert found.tensor(found.tensor("w").address).address == f"path:meta_graphs[{number}].graph_def" + (
            '.node[0].attr["value"].tensor'
        )
        assert len(list(model)) == 7
        with pytest.raises(NotFound, match="own"):
            found.tensor(f"own{(number + 1) % 3}")


def test_tags_that_no_meta_graph_has_are_told_with_those_that_are_there(folder: Path) -> None:
    with (
        protoslice.open_model(folder) as model,
        pytest.raises(NotFound, match=r"tags tpu; available: serve, serve,gpu, \(none\)"),
    ):
        list(model.tagged(["tpu"]))
    alone = protoslice.open_model(folder / "variables" / "variables.index")
    with alone, pytest.raises(Unsupported, match="has tags, not"):
        list(alone.tagged(["serve"]))

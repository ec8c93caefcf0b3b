"""Splitters of other packages: found by name, checked when loaded, asked for rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from tests.support.golden import CHUNKED

import protoslice
from protoslice import plugins, splitters
from protoslice.errors import InvalidInput, NotFound, Unsupported

FILE = CHUNKED / "graph_many_nodes.pb"


class Halves:
    """Cuts the nodes of a graph into two pieces."""

    def rules(self, proto: protoslice.Proto) -> Sequence[str]:
        """The rule for a graph; none for other types."""
        return [f"node: every {-(-proto.count('node') // 2)}"] if proto.type == "tensorflow.GraphDef" else []


class Mute:
    """A class that gives no rules."""


class Broken:
    """A class that cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no licence")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entry points of packages that bring splitters, good ones and bad ones."""
    named = {"halves": "Halves", "mute": "Mute", "broken": "Broken", "gone": "nothing:Here"}
    values = [(name, value if ":" in value else f"{__name__}:{value}") for name, value in named.items()]
    points = EntryPoints(
        EntryPoint(name, value, "protoslice.splitters")
        for name, value in [*values, ("two", f"{__name__}:Halves"), ("two", f"{__name__}:Mute")]
    )
    monkeypatch.setattr(plugins, "entry_points", points.select)
    splitters.SPLITTERS.forget()
    yield
    monkeypatch.undo()
    splitters.SPLITTERS.forget()


def test_a_splitter_gives_rules_by_the_index(installed: None) -> None:
    assert splitters.splitters() == ["broken", "gone", "halves", "mute", "two"]
    halves = splitters.splitter_named("halves")
    with protoslice.open(FILE) as proto:
        count = proto.count("node")
        half = -(-count // 2)
        assert [chunk.path for chunk in proto.split(splitter=halves)][1:] == [
            f"node[0:{half}]",
            f"node[{half}:{count}]",
        ]
        assert len(proto.split(splitter=halves, rules=["node: every 1"])) == 1 + count, "rules go before those of it"
    with protoslice.open(CHUNKED / "savedmodel_plain.pb") as other:
        assert other.split(splitter=halves).metadata == other.split().metadata


def test_rules_of_a_splitter_are_checked_like_others() -> None:
    class Wrong:
        def rules(self, proto: protoslice.Proto) -> Sequence[str]:
            return ["nodes: always"]

    with protoslice.open(FILE) as proto, pytest.raises(NotFound, match="has no field nodes"):
        proto.split(splitter=Wrong())


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("none", InvalidInput, "No splitter for 'none'; available: broken, gone, halves, mute, two"),
        ("two", InvalidInput, "Several installed packages"),
        ("mute", Unsupported, "'mute' of package .* has no method `rules`"),
        ("broken", Unsupported, "the splitter for 'broken' of .* does not load: RuntimeError: no licence"),
        ("gone", Unsupported, "Cannot import the splitter for 'gone' of .*: No module named 'nothing'"),
    ],
)
def test_a_splitter_that_cannot_be_had_is_told_in_one_line(installed: None, name: str, error: Any, said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        splitters.splitter_named(name)
    assert "\n" not in str(raised.value)


def test_the_command_line_takes_a_splitter_by_name(installed: None, tmp_path: Any) -> None:
    from typer.testing import CliRunner

    from protoslice.cli import app

    done = CliRunner().invoke(app.app, ["split", str(FILE), str(tmp_path / "out"), "--splitter", "halves"])
    assert (done.exit_code, done.exception) == (0, None), done.output
    with protoslice.open(tmp_path / "out.cpb") as proto:
        assert len(proto.chunks) == 3

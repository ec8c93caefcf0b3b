"""Splitters of other packages: they are found by name, checked when loaded, and called for rules.

Plug-ins by name: an error is one line that names the plug-in's package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from tests.support.golden import CHUNKED

import protoslice
from protoslice import plugins, splitters
from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.plugins import PluginGroup, PluginWarning, check_version

FILE = CHUNKED / "graph_many_nodes.pb"


class Halves:
    """A splitter that cuts the nodes of a graph into two pieces."""

    def rules(self, proto: protoslice.Proto) -> Sequence[str]:
        """Return the rule for a graph; no rules for other types."""
        return [f"node: every {-(-proto.count('node') // 2)}"] if proto.type == "tensorflow.GraphDef" else []


class Mute:
    """A class that returns no rules."""


class Broken:
    """A class that cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no licence")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install entry points of packages that bring valid and invalid splitters."""
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
        ("gone", Unsupported, "Cannot import the splitter for 'gone' from the package .*: No module named 'nothing'"),
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


class Distribution:
    """An installed package, as entry points see it."""

    name, version = "some-package", "1.2"


class Point(EntryPoint):
    """An entry point of an installed package; loading its module returns `found`, or raises it."""

    dist: Any = Distribution()  # type: ignore[misc]

    def load(self) -> Any:
        """Import the module that brings the plug-in."""
        found = PLUGINS[self.name]
        if isinstance(found, Exception):
            raise found
        return found


PLUGINS: dict[str, Any] = {
    "sound": "a plug-in",
    "absent": ModuleNotFoundError("No module named 'absent'\nand more"),
    "faulty": SyntaxError("invalid syntax"),
    "wanting": 5,
    "two": "one of two",
    "ours": "theirs",
}


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> PluginGroup[str]:
    """Return a group of texts, with our text and those of a package."""
    names = [*PLUGINS, "two"]
    points = EntryPoints(Point(name, "some_module:thing", "a.group") for name in names if name != "ours")
    monkeypatch.setattr(plugins, "entry_points", points.select)
    return PluginGroup(
        "a.group", "thing", {"ours": "ours"}, lambda found: None if isinstance(found, str) else "is no text"
    )


def test_a_plug_in_is_found_by_name(group: PluginGroup[str]) -> None:
    assert group.names() == ["absent", "faulty", "ours", "sound", "two", "wanting"]
    assert (group.get("ours"), group.get("sound")) == ("ours", "a plug-in")
    assert (group.package("ours"), group.package("sound")) == ("protoslice", "package some-package 1.2")


@pytest.mark.parametrize(
    ("name", "kind", "output"),
    [
        ("absent", Unsupported, "package some-package 1.2: ModuleNotFoundError: No module named 'abs"),
        ("faulty", Unsupported, "package some-package 1.2: SyntaxError: invalid syntax"),
        ("wanting", Unsupported, "the thing for 'wanting' of package some-package 1.2 is no text"),
        ("two", InvalidInput, "provide a thing for 'two': uninstall all but one of package some-package 1.2 and"),
        ("none", InvalidInput, "No thing for 'none'; available: absent, faulty, ours, sound, two, wanting"),
    ],
)
def test_a_fault_is_one_line(group: PluginGroup[str], name: str, kind: type[Exception], output: str) -> None:
    with pytest.raises(kind) as caught:
        group.get(name)
    assert output in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_of_ours_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([Point("ours", "some_module:thing", "a.group")])
    monkeypatch.setattr(plugins, "entry_points", points.select)
    group = PluginGroup("a.group", "thing", {"ours": "ours"})
    with pytest.warns(PluginWarning, match=r"'ours' is built in: the one of package some-package 1.2 is ignored"):
        assert group.get("ours") == "ours"


def test_registering(group: PluginGroup[str]) -> None:
    group.register("new", "registered")
    assert group.get("new") == "registered"
    for name, owner in (("new", "by module builtins"), ("ours", "by protoslice")):
        with pytest.raises(InvalidInput, match=f"The thing for '{name}' is already registered {owner}"):
            group.register(name, "another")
    group.register("sound", "in its place")
    assert group.get("sound") == "in its place"
    with pytest.raises(Unsupported, match=r"no .*text|not a string"):
        group.register("faulty", 5)  # type: ignore[arg-type]
    group.unregister("new")
    group.unregister("new")
    assert "new" not in group.names()


def test_modules_of_the_environment_register_theirs(
    group: PluginGroup[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first_plugin.py").write_text("import held_group\nheld_group.group.register('first', '1')\n")
    (tmp_path / "second_plugin.py").write_text("import held_group\nheld_group.group.register('second', '2')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "held_group", type(sys)("held_group"))
    sys.modules["held_group"].group = group  # type: ignore[attr-defined]
    monkeypatch.setenv("PROTOSLICE_PLUGINS", "first_plugin, second_plugin,")
    assert (group.get("first"), group.get("second")) == ("1", "2")


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (None, "ModuleNotFoundError: No module named 'broken_plugin'"),
        ("def", "SyntaxError: "),
        ("raise RuntimeError('no\\nmore')", "RuntimeError: no"),
    ],
)
def test_a_module_that_does_not_import_is_named(
    group: PluginGroup[str], text: str | None, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "broken_plugin.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PROTOSLICE_PLUGINS", "broken_plugin")
    for _ in range(2):
        with pytest.raises(Unsupported) as caught:
            group.names()
        assert f"Cannot import the module 'broken_plugin' listed in PROTOSLICE_PLUGINS: {output}" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [(2, 3), (2, 3, 1)[:2]])
def test_the_version_that_is_spoken(given: object) -> None:
    check_version("theirs", given, (2, 3))


@pytest.mark.parametrize(("given", "age"), [((2, 1), "older"), (2, "older"), ((2, 4), "newer")])
def test_another_minor_version_is_used_with_a_warning(given: object, age: str) -> None:
    with pytest.warns(PluginWarning, match=f"theirs was written for an? {age} interface: 2.. instead of 2.3"):
        check_version("theirs", given, (2, 3))


@pytest.mark.parametrize("given", [1, (1, 3), (3, 0), 3])
def test_another_major_version_is_refused(given: object) -> None:
    with pytest.raises(Unsupported, match=r"theirs uses interface version [13]\.[03], not 2\.3"):
        check_version("theirs", given, (2, 3))


@pytest.mark.parametrize("given", [None, "1.0", (1,), (1, "0"), (1, 0, 0)])
def test_a_version_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(Unsupported, match="theirs has no valid interface version"):
        check_version("theirs", given, (1, 0))

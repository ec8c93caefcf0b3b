"""Plug-ins by name: what is wrong with one is said in a line that names its package."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from protoslice import plugins
from protoslice.errors import InvalidInput, Unsupported
from protoslice.plugins import PluginGroup, PluginWarning, check_version


class Distribution:
    """Installed package, as entry points know it."""

    name, version = "some-package", "1.2"


class Point(EntryPoint):
    """Entry point of an installed package, whose module loads as `found`, or raises it."""

    dist: Any = Distribution()  # type: ignore[misc]

    def load(self) -> Any:
        """Import of the module that brings the plug-in."""
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
    """Group of texts, with one of ours and those of a package."""
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
        ("two", InvalidInput, "Several installed packages provide a thing for 'two': package some-package 1.2 and"),
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

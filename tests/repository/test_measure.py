"""Measures of the code, and the list of messages."""

from __future__ import annotations

from tools import measure
from tools.messages import messages

SOURCE = '''"""A module.

Two lines of it.
"""

import json  # a comment

TEXT = """one
two"""
"""What it is."""


def work() -> None:
    """Work."""
    from package import other
'''


def test_sizes_are_those_of_the_files_given() -> None:
    files = {
        "service/protoslice/a.py": SOURCE,
        "service/protoslice/sub/b.py": "from protoslice import a\ncache = LruCache[str, int](most=1)\n",
        "service/protoslice/server/b.py": "cache = LruCache(most=1)\n",
        "tests/test_a.py": 'def test() -> None:\n    """Nothing."""\n',
        "docs/a.md": "Plain words.",
        "docs/how-to/contribute/modules.md": "Generated",
    }
    assert measure.sizes(files) == {
        "package: lines of code": 8,
        "package: files": 3,
        "package: median lines of code of a file": 2,
        "package: files above 500 lines of code": 0,
        "package: modules with one importer": 1,
        "package: names of modules used three times or more": 0,
        "caches with a bound, without server, client and cli": 1,
        "tests: lines of code": 1,
        "tests: files": 1,
        "docs: words, without pages that are not in git": 2,
    }


def test_messages_are_of_every_kind() -> None:
    found = {(each.kind, " ".join(each.text.split())) for each in messages()}
    assert ("error", "No store after '@': add a tag or a store id") in found
    assert ("help", "Show the version and exit.") in found
    assert ("problem", "Quota exceeded") in found
    assert ("page", "Drop a model here") in found
    assert ("core", "the scan has not read the whole proto yet") in found
    assert {kind for kind, _ in found} == {"error", "log", "text", "help", "problem", "setting", "api", "page", "core"}

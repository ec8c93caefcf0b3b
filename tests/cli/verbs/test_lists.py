"""The verb `ls` against a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.stores import onnx


def test_ls_searches_and_sorts(call: Any, service: str, tmp_path: Path) -> None:
    for name, size in (("small", 100), ("large", 50_000)):
        (tmp_path / name).write_bytes(onnx(size, seed=size))
        call("push", str(tmp_path / name), "--tag", f"Searched-{name}:1", "--url", service)

    def names(*options: str) -> list[str]:
        return [line.split()[-1] for line in call("ls", *options, "--url", service).stdout.splitlines()[1:]]

    assert names("searched-", "--sort", "-size") == ["Searched-large:1", "Searched-small:1"]
    assert names("arched-", "--sort", "name") == ["Searched-large:1", "Searched-small:1"]
    assert names("searched", "--max-size", "10KiB") == ["Searched-small:1"]
    assert names("searched", "--since", "2030-01-01") == []
    shown = call("ls", "searched", "--limit", "1", "--url", service)
    assert len(shown.stdout.splitlines()) == 2
    assert "only the first 1 are shown; use --limit 0 for all" in shown.stderr
    assert len(json.loads(call("ls", "searched", "--limit", "0", "--json", "--url", service).stdout)) == 2
    unnamed = json.loads(call("push", str(tmp_path / "small"), "--url", service, "--json").stdout)["store"]["id"]
    assert unnamed not in call("ls", "--nameless", "--json", "--url", service).stdout, "it has a tag"
    call("rm", "Searched-small:1", "--url", service)
    assert unnamed in call("ls", "--nameless", "--json", "--url", service).stdout
    assert names("SMALL") == ["(small)"], "found by its file, which is shown in place of names"
    assert "without a name" in call("ls", "small", "--nameless", "--url", service, code=2).stderr
    assert "Invalid sort" in call("ls", "--sort", "color", "--url", service, code=2).stderr
    assert "leave out --sort" in call("ls", "--tag", "Searched", "--sort", "size", "--url", service, code=2).stderr
    assert "Invalid size" in call("ls", "--min-size", "big", "--url", service, code=2).stderr

"""Rules of splits on the command line: from a file, checked, printed as they are taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.golden import CHUNKED

import protoslice

FILE = CHUNKED / "graph_many_nodes.pb"
RULES = """
# nodes by the hundred
node: every 100

  node[3:5].attr["value"].tensor : 1KiB
versions: never
"""
CANONICAL = ["node: every 100", 'node[3:5].attr["value"].tensor: 1024', "versions: never"]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A file of rules."""
    path = tmp_path / "rules.txt"
    path.write_text(RULES)
    return path


def test_split_goes_by_rules(call: Any, rules: Path, tmp_path: Path) -> None:
    told = json.loads(call("split", FILE, tmp_path / "out", "--rules", rules, "--json").stdout)
    with protoslice.open(FILE) as proto, protoslice.open(tmp_path / "out.cpb") as parts:
        nodes = proto.count("node")
        due = [f"node[{at}:{min(at + 100, nodes)}]" for at in range(0, nodes, 100)]
        assert [chunk.path for chunk in proto.split(rules=CANONICAL)][1:] == due
        assert told["chunks"] == len(parts.chunks) == 1 + len(due) > 2
        assert parts.type == "tensorflow.GraphDef"
    listed = json.loads(call("chunks", FILE, "--rules", rules, "--json").stdout)
    assert [chunk["path"] for chunk in listed] == ["", *due]


def test_the_plan_is_printed_as_it_is_taken(call: Any, rules: Path, tmp_path: Path) -> None:
    printed = call("chunks", FILE, "--rules", rules, "--plan").stdout
    assert [line for line in printed.splitlines() if not line.startswith("#")] == CANONICAL
    (tmp_path / "again.txt").write_text(printed)
    assert call("chunks", FILE, "--rules", tmp_path / "again.txt", "--plan").stdout == printed


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("node: every 0", 2, "at character 6"),
        ("node..name: always", 2, "at character 6"),
        ("nodes: every 5", 4, "tensorflow.GraphDef has no field nodes"),
        ("é: always", 2, "at character 1"),
    ],
)
def test_a_wrong_rule_is_told_in_one_line(call: Any, tmp_path: Path, text: str, code: int, said: str) -> None:
    (tmp_path / "rules.txt").write_text(text)
    for verb in (("chunks", FILE), ("split", FILE, tmp_path / "out")):
        done = call(*verb, "--rules", tmp_path / "rules.txt", code=code)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_push_takes_rules_and_their_store_prints_them(call: Any, service: str, rules: Path, tmp_path: Path) -> None:
    at = call("push", FILE, "--rules", rules, "--url", service).stdout.strip()
    printed = call("chunks", at, "--plan").stdout
    assert [line for line in printed.splitlines() if not line.startswith("#")] == CANONICAL
    there, here = (json.loads(call("chunks", *args, "--json").stdout) for args in ([at], [FILE, "--rules", rules]))
    assert [chunk["path"] for chunk in there] == [chunk["path"] for chunk in here]
    assert "by split rules" in call("info", at).stdout
    assert f"OK: 1 file, {len(here)} chunks" in call("verify", at).stdout
    assert call("diff", FILE, at).stdout == "equal\n"
    call("pull", at, tmp_path / "back.pb")
    assert (tmp_path / "back.pb").read_bytes() == FILE.read_bytes()

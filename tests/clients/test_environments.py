"""Environments of foreign clients: one that is another checkout's is left as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from tests.support import environments


def test_an_environment_behind_a_link_is_not_cleared(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "ready").write_text("client==1")
    (tmp_path / ".make").mkdir()
    (tmp_path / ".make/client-2").symlink_to(other)
    really = subprocess.run

    def without_pip(command: list[str], check: bool, **more: object) -> None:
        if "venv" in command:
            really([*command, "--without-pip"], check=check)

    with patch.object(environments, "ROOT", tmp_path), patch("tests.support.environments.subprocess.run", without_pip):
        python = environments.python_of("client==2")
        assert environments.is_made("client==2")
    assert [each.name for each in other.iterdir()] == ["ready"]
    assert python.resolve() == Path(sys.executable).resolve()
    assert python.parent.parent.resolve() == tmp_path / ".make/client-2"

"""The transcripts `*.console` of this folder: commands, their output, and their exit codes.

A transcript begins with comments about its requirements:

    # files: graph layers             made by the functions of `makers.py`, again for each section
    # service: open                   or `tokens`; PROTOSLICE_URL is an empty space of the service
    # MODEL: graph.pb @model:1        commands that name MODEL run with each of these, and show the same

Steps before the first title run at the beginning of each section. A section, below `## TITLE`, is a test.
`tests/support/console.py` describes steps and marks; `--update-transcripts` writes the output into the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from itertools import count
from pathlib import Path
from typing import Final

import httpx
import pytest
from tests.cli.makers import MAKERS
from tests.support.console import Shell, rewritten, steps
from tests.support.golden import MODELS

HERE: Final = Path(__file__).parent
ADDRESS: Final = "http://127.0.0.1:8000"
_SPACES = count(1)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a transcript that runs alone."""

    file: Path
    title: str
    preamble: str
    text: str

    def needs(self, name: str) -> list[str]:
        """Return the words of a comment such as `# files: graph layers`."""
        found = re.findall(rf"^# {name}: (.*)$", f"{self.preamble}\n{self.text}", re.MULTILINE)
        return [word for line in found for word in line.split()]


def sections(file: Path) -> Iterator[Section]:
    """Yield the sections of a transcript."""
    preamble, *parts = re.split(r"^## ", file.read_text(), flags=re.MULTILINE)
    for part in parts:
        title, _, text = part.partition("\n")
        yield Section(file, title, preamble, text)


def run(section: Section, shell: Shell) -> tuple[str, str]:
    """Run a section; return the preamble and the text with the actual output."""
    outputs = []
    for step in [*steps(section.preamble), *steps(section.text)]:
        models = section.needs("MODEL") if "MODEL" in step.command else [""]
        expected, shown = step.expected, step.expected
        for model in models:
            output = shell.shown(step, {model: "MODEL"} if model else {})
            shown = output if shown == expected else shown
        outputs.append(shown)
    first = len(steps(section.preamble))
    return rewritten(section.preamble, outputs[:first]), rewritten(section.text, outputs[first:])


def difference(section: Section, shell: Shell, *, update: bool = False) -> str:
    """Run a section; return how the output differs from the file, or write the output there."""
    preamble, text = run(section, shell)
    if update:
        before, title, after = section.file.read_text().partition(f"## {section.title}\n")
        section.file.write_text(before.replace(section.preamble, preamble) + title + after.replace(section.text, text))
    expected, shown = f"{section.preamble}{section.text}", f"{preamble}{text}"
    return "\n".join(unified_diff(expected.splitlines(), shown.splitlines(), section.file.name, "shown", lineterm=""))


ALL: Final = [section for file in sorted(HERE.glob("*.console")) for section in sections(file)]


@pytest.mark.parametrize("section", ALL, ids=lambda section: f"{section.file.stem}: {section.title}")
def test_transcript(section: Section, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    update = request.config.getoption("--update-transcripts")
    found = difference(section, shell_for(section, request, tmp_path), update=update)
    if found and not update:
        pytest.fail(found, pytrace=False)


RIGHT: Final = """# A transcript.

$ printf 'one\\ntwo\\nthree\\n'
one
t…o
three

## A section
# Of comments and commands.

$ protoslice tree absent.pb
protoslice: …No such file or directory…
[exit 4]

$ name=$(protoslice --version)
$ protoslice --version | sed "s/$name/the same/" > out
$ cat out
the same
"""


def _found(folder: Path, text: str, *, update: bool = False) -> str:
    file, here = folder / "a.console", folder / "here"
    here.mkdir(exist_ok=True)
    file.write_text(text)
    (section,) = sections(file)
    return difference(section, Shell(here, {"PROTOSLICE_URL": ""}, {}), update=update)


def test_a_transcript_passes_as_it_is_shown(tmp_path: Path) -> None:
    assert _found(tmp_path, RIGHT) == ""


@pytest.mark.parametrize(
    ("right", "wrong", "shown"),
    [
        ("three\n\n", "there\n\n", "+three"),
        ("three\n\n", "\n", "+three"),
        ("three\n\n", "three\nfour\n\n", "-four"),
        ("t…o\n", "t…w\n", "+two"),
        ("t…o\n", "[...]\nfour\n", "-four"),
        ("[exit 4]", "[exit 3]", "+[exit 4]"),
        ("[exit 4]\n", "", "+[exit 4]"),
        ("the same\n", "the same\n[exit 1]\n", "-[exit 1]"),
    ],
)
def test_a_transcript_that_is_wrong_fails_and_is_corrected(tmp_path: Path, right: str, wrong: str, shown: str) -> None:
    assert right in RIGHT
    found = _found(tmp_path, RIGHT.replace(right, wrong), update=True)
    assert shown in found.splitlines()
    corrected = (tmp_path / "a.console").read_text()
    assert corrected == RIGHT.replace("t…o", "two" if "t…o" in right else "t…o")
    assert _found(tmp_path, corrected) == ""


def shell_for(section: Section, request: pytest.FixtureRequest, folder: Path) -> Shell:
    """Return a shell in a folder with the files of a section, and with an empty space of its service."""
    home, here = folder / "home", folder / "here"
    here.mkdir()
    for name in section.needs("files"):
        MAKERS[name](here)
    environment = {"XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home), "PROTOSLICE_URL": "", "LC_ALL": "C.UTF-8"}
    names = {str(here): "/here", str(MODELS): "/golden"}
    service = section.needs("service")
    if service:
        space = f"section-{next(_SPACES)}"
        url, token = request.getfixturevalue("service" if service == ["open"] else "closed"), ""
        if service == ["tokens"]:
            names[url.storage.as_uri()] = "file:///storage"
            url, token = url.url, url.admin
        headers = {"authorization": f"Bearer {token}"} if token else {}
        httpx.put(f"{url}/v1/spaces/{space}", headers=headers).raise_for_status()
        environment |= {"PROTOSLICE_URL": f"{url}/spaces/{space}", "PROTOSLICE_TOKEN": token, "ADMIN": token}
        team = f"{ADDRESS}/spaces/team" if token else ADDRESS
        names |= {f"{url}/spaces/{space}": team, url: ADDRESS} | ({space: "team"} if token else {})
    return Shell(here, environment, names)

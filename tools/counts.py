"""Count the words of the project's former dialect.

`python tools/counts.py` prints the marked words per 1 000 words of each text that users read, with their limits in
`tools/limits.json`. `--check` (in `make check`) only fails when a text is over its limit. After an improvement,
`--lower` writes the lower counts as limits. Limits are never raised.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LIMITS: Final = ROOT / "tools/limits.json"
MARKED: Final = re.compile(
    r"\b(told|tells? of|beside|alone|anew|nobody|nothing but|whoever|whatever|of (?:its|their) own|thereof"
    r"|stands? (?:in|at|there|still)|lies? (?:in|at|there|beside)|comes? (?:with|from|behind)|goes? on|breaks? off"
    r"|(?:is|are) due|by (?:itself|themselves)|what is there|as it (?:is|was|came)|is to be had|would be dear|a word of"
    r"|is no (?!longer))\b",
    re.IGNORECASE,
)
CODE: Final = re.compile(r"```.*?```|`[^`]*`|\{[^{}]*\}", re.DOTALL)


def marked(text: str) -> float:
    """Return how many of 1 000 words of `text` are marked; code and values do not count."""
    prose = CODE.sub(" ", text)
    return 1000 * len(MARKED.findall(prose)) / max(1, len(re.findall(r"\w+", prose)))


def counts() -> dict[str, float]:
    """Return the marked words of each text by its name."""
    sys.path.insert(0, str(ROOT))  # for a run as `python tools/counts.py`
    from tools.measure import MADE
    from tools.messages import messages

    pages = [ROOT / "README.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {ROOT / page for page in MADE})]
    found = {f"marked words, {page.relative_to(ROOT)}": marked(page.read_text()) for page in pages}
    found["marked words, messages"] = marked("\n".join(each.text for each in messages()))
    return {name: round(count, 2) for name, count in found.items()}


def exceeded(found: dict[str, float], limits: dict[str, float]) -> list[str]:
    """Return a line for each count over its limit; a count that has no limit yet may be 1."""
    return [
        f"{name}: {count}, at most {most}" for name, count in found.items() if count > (most := limits.get(name, 1))
    ]


def lowered(found: dict[str, float], limits: dict[str, float]) -> dict[str, float]:
    """Return the limits, with each that a count has fallen below replaced by that count."""
    return {name: min(count, limits.get(name, count)) for name, count in found.items()}


def main(arguments: list[str]) -> int:
    """Print the counts, and return 1 when one is over its limit."""
    found, limits = counts(), json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    if arguments == ["--lower"]:
        LIMITS.write_text(json.dumps(lowered(found, limits), indent=1) + "\n")
    elif over := exceeded(found, limits):
        print(*over, "Use plain words: see 'How we write prose' in CONTRIBUTING.md", sep="\n")
        return 1
    else:
        print(*(f"{count:8g} (at most {limits.get(name, 1):g})  {name}" for name, count in found.items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

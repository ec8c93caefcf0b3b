"""Check of the environment: names that look like settings and are none, such as misspelt limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from protoslice.errors import InvalidInput

PREFIX: Final = "PROTOSLICE_"
_OTHERS: Final = frozenset(
    PREFIX + name
    for name in ("URL", "AUTHORIZATION", "TOKEN", "TOKEN_FILE", "PLUGINS", "MAX_UPLOAD_BYTES", "S3_KEY", "S3_SECRET")
) | {f"{PREFIX}KILLS", f"{PREFIX}FLIPS"}
"""Names read by others, such as the command line and tests, and the second name of a setting."""
_OF_TESTS: Final = (f"{PREFIX}TEST_", f"{PREFIX}SOAK_")
_LINK: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_LINK_PORT: Final = re.compile(r"(tcp|udp|sctp)://")
"""Variables that Kubernetes sets about Services, one named `protoslice-…` among them."""


def refuse_unknown(environment: Mapping[str, str], settings: Iterable[str]) -> None:
    """Raise `InvalidInput` for names with the prefix that are no `settings`; names the nearest ones.

    Upper and lower case do not differ, as they do not for settings. No value is told.
    """
    known = _OTHERS | set(settings)
    unknown = [
        name
        for name, value in environment.items()
        if (upper := name.upper()).startswith(PREFIX) and not (upper in known or _is_foreign(upper, value))
    ]
    if unknown:
        raise InvalidInput("; ".join(_told(name, known) for name in sorted(unknown)))


def _is_foreign(name: str, value: str) -> bool:
    linked = _LINK.fullmatch(name) or (name.endswith("_PORT") and _LINK_PORT.match(value))
    return bool(linked) or name.startswith(_OF_TESTS)


def _told(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[len(PREFIX) :].upper(), sorted(each[len(PREFIX) :] for each in known), n=3)
    hint = f"did you mean {' or '.join(PREFIX + each for each in near)}?" if near else "see docs/configuration.md"
    return f"Unknown setting {name}: {hint}"

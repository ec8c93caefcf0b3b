"""Sessions of browsers: cookies signed as URLs are; no replica keeps anything.

A cookie holds no secret of its caller. A session ends after some hours, or with the token or JWT that it was begun by,
at every replica. A cookie counts for requests of the service's own pages alone, and under the name of the host that
gave it out.
"""

from __future__ import annotations

import re
import time
from typing import Final

from starlette.types import Scope

from protoslice.server.auth.signatures import Purpose, Signer, UrlSignature
from protoslice.server.http.headers import Fields
from protoslice.server.http.security import is_own_page

SESSION: Final = "protoslice-session"
LOGIN: Final = "protoslice-login"
"""Name of the cookie of a sign-in under way."""
_LONGEST: Final = 16 << 10
"""Characters of all cookies of a request; of more, none is read."""
_SESSION: Final = re.compile(r"([0-9]{1,12})\.([0-9A-Za-z]{10}|[0-9A-Za-z_-]{40,1600})\.([0-9a-f]{64})")


def session_of(scope: Scope, fields: Fields) -> UrlSignature | None:
    """The session that a request of an own page is part of, not yet proved; None without one."""
    text = read_cookie(scope, fields, SESSION)
    found = None if text is None else _SESSION.fullmatch(text)
    if found is None or not is_own_page(scope["method"], fields):
        return None
    return UrlSignature(found[2], int(found[1]), _said(fields, found[1], found[2]).encode(), found[3], Purpose.SESSION)


def session_cookie(scope: Scope, fields: Fields, signer: Signer) -> tuple[str, int]:
    """Value of Set-Cookie that begins a session, and its end in seconds since the epoch."""
    end = Purpose.SESSION.end(signer.end)
    value = f"{end}.{signer.id}.{signer.hmac(Purpose.SESSION, _said(fields, str(end), signer.id))}"
    return set_cookie(scope, SESSION, value, max(0, int(end - time.time())), "Strict"), end


def read_cookie(scope: Scope, fields: Fields, name: str) -> str | None:
    """The cookie of a name; None unless there is exactly one."""
    # Of two, a neighbour in the domain has planted one.
    begin, all_of_them = f"{_name(scope, name)}=", fields.get(b"cookie", "")
    if len(all_of_them) > _LONGEST:
        return None
    found = [each.strip() for each in all_of_them.split(";")]
    values = [each.removeprefix(begin) for each in found if each.startswith(begin)]
    return values[0] if len(values) == 1 else None


def set_cookie(scope: Scope, name: str, value: str, seconds: int, same_site: str) -> str:
    """Value of Set-Cookie for a cookie that scripts do not see; 0 seconds remove it."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{_name(scope, name)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}"


def _name(scope: Scope, name: str) -> str:
    # Browsers take __Host- over TLS alone, and then from this very host.
    return f"__Host-{name}" if scope["scheme"] == "https" else name


def _said(fields: Fields, end: str, signer: str) -> str:
    """Text that a session signs."""
    return f"session {fields.get(b'host', '').lower()} {end} {signer}"

"""Renewal of kept id tokens before they end, by one process at a time."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from typing import Final

from protoslice.credentials import CredentialsWarning, Kept, Renewal, changing, end_of
from protoslice.errors import ProtosliceError, StorageDenied
from protoslice.openid.device import id_token_in
from protoslice.openid.issuers import IssuerEndpoints, exchange

_AHEAD: Final = timedelta(seconds=60)
"""Time before its end at which a token is renewed."""


def ends_soon(kept: Kept) -> bool:
    """True for a token that can be renewed, and whose end is near or past."""
    end = end_of(kept.token)
    return kept.renewal is not None and end is not None and end - _AHEAD <= datetime.now(UTC)


def renewed(origin: str) -> str | None:
    """The token that is kept for `origin`, renewed; the one before where the issuer gives none."""
    # Locked until the new one is kept: issuers take a refresh token once, and a second process would lose.
    with changing() as all_kept:
        kept = all_kept.get(origin)
        if kept is None or kept.renewal is None or not ends_soon(kept):
            return None if kept is None else kept.token  # another process was first
        try:
            all_kept[origin] = _renewed(kept.renewal)
        except ProtosliceError as error:
            warnings.warn(f"Could not renew the token for {origin}: {error.message}", CredentialsWarning, stacklevel=2)
        return all_kept[origin].token


def _renewed(renewal: Renewal) -> Kept:
    issuer = IssuerEndpoints(renewal.issuer)
    place = issuer.endpoint("token_endpoint")
    if place is None:
        raise StorageDenied("the issuer no longer has a token_endpoint")
    form = {"grant_type": "refresh_token", "refresh_token": renewal.token, "client_id": renewal.client_id}
    status, said = exchange(place, form)
    if status != 200:
        raise StorageDenied("the issuer no longer accepts the refresh token")
    again = said.get("refresh_token", renewal.token)
    return Kept(id_token_in(said), renewal.followed_by(again))

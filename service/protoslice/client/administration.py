"""Calls of a client about spaces, tokens and webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, Unpack

from protoslice.client.http.connection import Connection, Params, given_params, url_path
from protoslice.client.http.decoding import decode, paginated
from protoslice.client.options import ChangeSearch, search_params
from protoslice.errors import IntegrityError, NotFound, named_options
from protoslice.facts import AccessToken, AuditEntry, EventLetter, Redelivered, S3Keys, SignInTerms, Space, WebhookFacts

T = TypeVar("T")


@named_options
class Administration:
    """Calls of administrators over the connection of a client."""

    _connection: Connection

    def spaces(self) -> Iterator[str]:
        """Names of all spaces of the service, the default one first."""
        return (space.name for space in self.space_usage())

    def space_usage(self) -> Iterator[Space]:
        """All spaces of the service with what they hold and their quotas, the default one first."""
        return self._each(Space, "/v1/spaces")

    def create_space(self, name: str) -> None:
        """Create a space, unless it exists; its URL is that of the service, `/spaces/` and the name."""
        self._connection.call("PUT", url_path("v1", "spaces", name))

    def remove_space(self, name: str, *, with_stores: bool = False) -> None:
        """Remove a space, which has to be empty unless `with_stores`."""
        params = given_params(with_stores="true" if with_stores else None)
        self._connection.call("DELETE", url_path("v1", "spaces", name), params=params, again=False)

    def set_quota(
        self,
        space: str,
        *,
        stored_bytes: int | None = None,
        stores: int | None = None,
        open_uploads: int | None = None,
        requests: int | None = None,
    ) -> Space:
        """Set the quota of a space, created unless it exists; 0 is no limit, None that of the service."""
        said = _limits(stored_bytes, stores, open_uploads, requests)
        return decode(Space, self._connection.call("PUT", url_path("v1", "spaces", space), json=said).json())

    def change_quota(
        self,
        space: str,
        *,
        stored_bytes: int | None = None,
        stores: int | None = None,
        open_uploads: int | None = None,
        requests: int | None = None,
    ) -> Space:
        """Change limits of a space, which must exist; 0 is no limit, None leaves a limit unchanged."""
        limits = _limits(stored_bytes, stores, open_uploads, requests)
        said = {name: value for name, value in limits.items() if value is not None}
        return decode(Space, self._connection.call("PATCH", url_path("v1", "spaces", space), json=said).json())

    def changes(self, *, every_space: bool = False, **search: Unpack[ChangeSearch]) -> Iterator[AuditEntry]:
        """Return changes of the space and who made them, newest first; needs an admin token.

        With `every_space`, those that concern all spaces.
        """
        everywhere = given_params(every_space="true" if every_space else None)
        return self._each(AuditEntry, "/v1/audit", [*search_params(search), *everywhere])

    def is_open(self) -> bool:
        """True for a service that requires no tokens."""
        said = self._connection.call("GET", "/session").json()
        return isinstance(said, dict) and said.get("asks") is False

    def sign_in_terms(self) -> SignInTerms | None:
        """Way in which people sign in (RFC 9728); None where the service names no issuer."""
        try:
            said = self._connection.call("GET", "/.well-known/oauth-protected-resource").json()
            issuers, client, scopes = said["authorization_servers"], said["client_id"], said["scopes_supported"]
        except NotFound:
            return None
        except (KeyError, TypeError):
            raise IntegrityError("The service does not name an identity provider to sign in with") from None
        lists = isinstance(issuers, list) and isinstance(scopes, list) and bool(issuers)
        if not lists or not all(isinstance(text, str) and text.isprintable() for text in (issuers[0], client, *scopes)):
            raise IntegrityError("The service does not name an identity provider to sign in with")
        return SignInTerms(issuers[0], client, tuple(scopes))

    def create_token(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        tags: Sequence[str] = (),
        expires_seconds: int | None = None,
        every_space: bool = False,
    ) -> AccessToken:
        """Make a token for the space of this client's URL; only the result holds it, and only this once."""
        said = {"name": name, "scopes": list(scopes), "tags": list(tags), "every_space": every_space}
        said |= {} if expires_seconds is None else {"expires_seconds": expires_seconds}
        return decode(AccessToken, self._connection.call("POST", "/v1/tokens", json=said, again=False).json())

    def s3_keys(self) -> S3Keys:
        """Return the S3 keys of the caller, which may read what its token may, and end with it.

        `Unsupported` for an open service, which takes any keys.
        """
        return decode(S3Keys, self._connection.call("POST", "/v1/s3-keys").json())

    def tokens(self, *, every_space: bool = False) -> Iterator[AccessToken]:
        """The tokens of the space, or those for every space."""
        return self._each(AccessToken, "/v1/tokens", given_params(every_space="true" if every_space else None))

    def revoke_token(self, id: str, *, every_space: bool = False) -> None:
        """Revoke a token."""
        params = given_params(every_space="true" if every_space else None)
        self._connection.call("DELETE", url_path("v1", "tokens", id), params=params, again=False)

    def put_webhook(self, name: str, url: str, *, events: Sequence[str] = ()) -> WebhookFacts:
        """Create or replace a webhook of the space; only the result holds its secret, and only this once."""
        said = {"url": url, "events": list(events)}
        path = url_path("v1", "webhooks", name)
        return decode(WebhookFacts, self._connection.call("PUT", path, json=said, again=False).json())

    def webhooks(self) -> Iterator[WebhookFacts]:
        """The webhooks of the space."""
        return paginated(self._connection, WebhookFacts, "/v1/webhooks", limit=None)

    def letters(self, webhook: str, *, dead: bool = False) -> Iterator[EventLetter]:
        """Events that a webhook has not taken, oldest first: those that are tried again, or the dead letters."""
        path = url_path("v1", "webhooks", webhook) + "/letters"
        return self._each(EventLetter, path, given_params(dead="true" if dead else None))

    def redeliver(self, webhook: str) -> int:
        """Deliver the dead letters of a webhook again; the number of them."""
        path = url_path("v1", "webhooks", webhook) + "/redeliver"
        return decode(Redelivered, self._connection.call("POST", path, again=False).json()).letters

    def remove_webhook(self, name: str) -> None:
        """Remove a webhook, and the events that it has not taken."""
        self._connection.call("DELETE", url_path("v1", "webhooks", name), again=False)

    def _each(self, kind: type[T], path: str, params: Params = (), *, slow: bool = False) -> Iterator[T]:
        return paginated(self._connection, kind, path, params, slow=slow)


def _limits(
    stored_bytes: int | None, stores: int | None, open_uploads: int | None, requests: int | None
) -> dict[str, int | None]:
    return {
        "quota_bytes": stored_bytes,
        "quota_stores": stores,
        "quota_open_uploads": open_uploads,
        "quota_requests": requests,
    }

"""The methods of a client that administer spaces, tokens and webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, Unpack

from protoslice.client.http.connection import Connection, Params, given_params, url_path
from protoslice.client.http.decoding import decode, paginated
from protoslice.client.options import ChangeSearch, search_params
from protoslice.errors import IntegrityError, NotFound, named_options
from protoslice.facts import AccessToken, AuditEntry, EventLetter, Redelivered, SignInTerms, Space, WebhookFacts

T = TypeVar("T")


@named_options
class Administration:
    """The methods of a client that administer a service."""

    _connection: Connection

    def spaces(self) -> Iterator[str]:
        """Return the names of all spaces of the service. The default space comes first.

        Returns:
            An iterator of names.

        Raises:
            StorageDenied: The token lacks the scope `admin`.

        Examples:
            >>> next(client.spaces())
            'default'
        """
        return (space.name for space in self.space_usage())

    def space_usage(self) -> Iterator[Space]:
        """Return all spaces of the service with their usage and quotas. The default space comes first.

        Returns:
            An iterator of spaces.

        Raises:
            StorageDenied: The token lacks the scope `admin`.

        Examples:
            >>> next(client.space_usage()).stores > 0
            True
        """
        return self._each(Space, "/v1/spaces")

    def create_space(self, name: str) -> None:
        """Create a space, unless it exists. The space's URL is the service's URL, then `/spaces/` and the name.

        Args:
            name: Lower-case letters, digits and `-`, at most 63 characters.

        Raises:
            InvalidInput: The name is invalid.
            StorageDenied: The token lacks the scope `admin`, or is not valid in every space.

        Examples:
            >>> client.create_space("vision")
        """
        self._connection.call("PUT", url_path("v1", "spaces", name))

    def remove_space(self, name: str, *, with_stores: bool = False) -> None:
        """Remove a space.

        Args:
            name: Name of the space.
            with_stores: Remove the stores of the space too. Without this option, the space has to be empty.

        Raises:
            NotFound: There is no such space.
            Conflict: The space is not empty.

        Examples:
            >>> client.create_space("old")
            >>> client.remove_space("old")
        """
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
        """Set the quota of a space, and create the space if it does not exist.

        For each limit, 0 means no limit, and None means the service's default.

        Args:
            space: Name of the space.
            stored_bytes: Maximum number of bytes in uploaded objects.
            stores: Maximum number of stores.
            open_uploads: Maximum number of unfinished resumable uploads.
            requests: Maximum number of concurrent requests per replica.

        Returns:
            The space with its usage and its quota.

        Raises:
            InvalidInput: A limit is negative.

        Examples:
            >>> client.set_quota("research", stores=100).quota_stores
            100
        """
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
        """Change some limits of an existing space.

        For each limit, 0 means no limit, and None leaves the limit unchanged.

        Args:
            space: Name of the space.
            stored_bytes: Maximum number of bytes in uploaded objects.
            stores: Maximum number of stores.
            open_uploads: Maximum number of unfinished resumable uploads.
            requests: Maximum number of concurrent requests per replica.

        Returns:
            The space with its usage and its quota.

        Raises:
            NotFound: There is no such space.

        Examples:
            >>> client.set_quota("research", stores=100).quota_requests
            0
            >>> client.change_quota("research", requests=20).quota_stores
            100
        """
        limits = _limits(stored_bytes, stores, open_uploads, requests)
        said = {name: value for name, value in limits.items() if value is not None}
        return decode(Space, self._connection.call("PATCH", url_path("v1", "spaces", space), json=said).json())

    def changes(self, *, every_space: bool = False, **search: Unpack[ChangeSearch]) -> Iterator[AuditEntry]:
        """Return the space's audit log: which changes were made by whom, newest first.

        Args:
            every_space: Return the changes that concern all spaces instead of the changes of this space.
            **search: Conditions on author, kind, subject and time of a change. See `ChangeSearch`.

        Returns:
            An iterator of changes.

        Raises:
            StorageDenied: The token lacks the scope `admin`.

        Examples:
            >>> next(client.changes(what="tag.set")).subject
            'demo:1'
        """
        everywhere = given_params(every_space="true" if every_space else None)
        return self._each(AuditEntry, "/v1/audit", [*search_params(search), *everywhere])

    def is_open(self) -> bool:
        """Return True if the service requires no tokens.

        Returns:
            True if the service accepts requests without a token.

        Examples:
            >>> client.is_open()
            False
        """
        said = self._connection.call("GET", "/session").json()
        return isinstance(said, dict) and said.get("asks") is False

    def sign_in_terms(self) -> SignInTerms | None:
        """Return the identity provider at which people sign in to the service. RFC 9728 defines the format.

        Returns:
            The provider's issuer URL, the client id and the scopes. None if the service names no provider.

        Raises:
            IntegrityError: The response is invalid.

        Examples:
            >>> client.sign_in_terms() is None
            True
        """
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
        """Create a token for the space of this client's URL.

        Only this result contains the secret token; the service cannot return it again later.

        Args:
            name: Name that audit logs show.
            scopes: Some of `read`, `write`, `delete`, `register`, `schemas` and `admin`.
            tags: Patterns of tags that the token may set and remove, such as `resnet:*`, or empty for all tags.
            expires_seconds: Seconds until the token expires, or None for a token that never expires.
            every_space: Make the token valid in every space.

        Returns:
            The token and its id.

        Raises:
            InvalidInput: A scope or a pattern is invalid.
            StorageDenied: The token of this client lacks the scope `admin`.

        Examples:
            >>> made = client.create_token("ci", ["read", "write"], expires_seconds=3600)
            >>> made.scopes
            ('read', 'write')
        """
        said = {"name": name, "scopes": list(scopes), "tags": list(tags), "every_space": every_space}
        said |= {} if expires_seconds is None else {"expires_seconds": expires_seconds}
        return decode(AccessToken, self._connection.call("POST", "/v1/tokens", json=said, again=False).json())

    def tokens(self, *, every_space: bool = False) -> Iterator[AccessToken]:
        """Return the tokens of the space.

        Args:
            every_space: Return the tokens that are valid in every space instead of this space's tokens.

        Returns:
            An iterator of tokens, without their secrets.

        Raises:
            StorageDenied: The token of this client lacks the scope `admin`.

        Examples:
            >>> made = client.create_token("trainer", ["read"])
            >>> "trainer" in [token.name for token in client.tokens()]
            True
        """
        return self._each(AccessToken, "/v1/tokens", given_params(every_space="true" if every_space else None))

    def revoke_token(self, id: str, *, every_space: bool = False) -> None:
        """Revoke a token.

        Args:
            id: Id of the token.
            every_space: True for a token that is valid in every space.

        Raises:
            NotFound: There is no such token.

        Examples:
            >>> made = client.create_token("temporary", ["read"])
            >>> client.revoke_token(made.id)
        """
        params = given_params(every_space="true" if every_space else None)
        self._connection.call("DELETE", url_path("v1", "tokens", id), params=params, again=False)

    def put_webhook(self, name: str, url: str, *, events: Sequence[str] = ()) -> WebhookFacts:
        """Create or replace a webhook of the space.

        Only this result contains the webhook's secret; the service cannot return it again later.

        Args:
            name: Name of the webhook.
            url: URL to which the service sends events. The service's operator has to allow the URL.
            events: Types of the events to send, such as `tag.set`, or empty for all types.

        Returns:
            The webhook with its secret.

        Raises:
            InvalidInput: The operator does not allow the URL, or an event type does not exist.

        Examples:
            >>> made = client.put_webhook("ci", "https://ci.example/hooks", events=["tag.set"])
            >>> made.secret[:6]
            'whsec_'
        """
        said = {"url": url, "events": list(events)}
        path = url_path("v1", "webhooks", name)
        return decode(WebhookFacts, self._connection.call("PUT", path, json=said, again=False).json())

    def webhooks(self) -> Iterator[WebhookFacts]:
        """Return the webhooks of the space, without their secrets.

        Returns:
            An iterator of webhooks.

        Examples:
            >>> made = client.put_webhook("ci", "https://ci.example/hooks")
            >>> [webhook.name for webhook in client.webhooks()]
            ['ci']
        """
        return paginated(self._connection, WebhookFacts, "/v1/webhooks", limit=None)

    def letters(self, webhook: str, *, dead: bool = False) -> Iterator[EventLetter]:
        """Return the events that the receiver of a webhook has not accepted, oldest first.

        Args:
            webhook: Name of the webhook.
            dead: Return the events that the service no longer retries, instead of the events that it still retries.

        Returns:
            An iterator of events with the number of attempts and the last error.

        Raises:
            NotFound: There is no such webhook.

        Examples:
            >>> made = client.put_webhook("ci", "https://ci.example/hooks")
            >>> list(client.letters("ci", dead=True))
            []
        """
        path = url_path("v1", "webhooks", webhook) + "/letters"
        return self._each(EventLetter, path, given_params(dead="true" if dead else None))

    def redeliver(self, webhook: str) -> int:
        """Retry the delivery of a webhook's dead events, which the service had given up.

        Args:
            webhook: Name of the webhook.

        Returns:
            The number of events that are retried.

        Raises:
            NotFound: There is no such webhook.

        Examples:
            >>> made = client.put_webhook("ci", "https://ci.example/hooks")
            >>> client.redeliver("ci")
            0
        """
        path = url_path("v1", "webhooks", webhook) + "/redeliver"
        return decode(Redelivered, self._connection.call("POST", path, again=False).json()).letters

    def remove_webhook(self, name: str) -> None:
        """Remove a webhook together with its undelivered events.

        Args:
            name: Name of the webhook.

        Raises:
            NotFound: There is no such webhook.

        Examples:
            >>> made = client.put_webhook("ci", "https://ci.example/hooks")
            >>> client.remove_webhook("ci")
        """
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

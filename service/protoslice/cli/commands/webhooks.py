"""The commands of the group `webhook`, which manage the webhooks of a space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from protoslice.cli.models.remote import connect
from protoslice.cli.options import Json, SpaceUrl
from protoslice.cli.tables import note, print_items, print_json, say
from protoslice.facts import EventLetter, WebhookFacts
from protoslice.references import service_url

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the webhook, as shown by `webhook ls`.")]


def put(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9 and '-', at most 63 characters.")],
    receiver: Annotated[str, typer.Argument(metavar="RECEIVER", help="URL that receives events by POST.")],
    event: Annotated[
        list[str] | None, typer.Option(metavar="EVENT", help="Event type, such as tag.set; repeatable; default: all.")
    ] = None,
    url: SpaceUrl = None,
    as_json: Json = False,
) -> None:
    """Create or replace a webhook, and print its secret (only once).

    Example: protoslice webhook put ci https://ci.example/hooks/models --event ref.set
    """
    with connect(service_url(url)) as client:
        made = client.put_webhook(name, receiver, events=event or ())
    if as_json:
        print_json(made)
        return
    print(made.secret)
    note(f"Webhook {made.name}: secret (shown only once)")


def ls(url: SpaceUrl = None, as_json: Json = False) -> None:
    """List the webhooks of a space.

    Example: protoslice webhook ls --url http://models.example/spaces/team
    """
    with connect(service_url(url)) as client:
        columns: dict[str, Callable[[WebhookFacts], object]] = {
            "name": lambda hook: hook.name,
            "receiver": lambda hook: hook.url,
            "events": lambda hook: hook.events,
        }
        print_items(client.webhooks(), columns, as_json=as_json)


def deliveries(
    name: Name,
    dead: Annotated[
        bool, typer.Option("--dead", help="List events that failed permanently, instead of pending ones.")
    ] = False,
    url: SpaceUrl = None,
    as_json: Json = False,
) -> None:
    """List the events that a webhook's receiver has not accepted yet.

    Example: protoslice webhook letters ci --dead
    """
    with connect(service_url(url)) as client:
        columns: dict[str, Callable[[EventLetter], object]] = {
            "id": lambda event: event.id,
            "event": lambda event: event.type,
            "subject": lambda event: event.subject,
            "attempts": lambda event: event.attempts,
            "error": lambda event: event.error,
        }
        print_items(client.letters(name, dead=dead), columns, as_json=as_json)


def redeliver(name: Name, url: SpaceUrl = None) -> None:
    """Retry the delivery of a webhook's failed events.

    Example: protoslice webhook redeliver ci
    """
    with connect(service_url(url)) as client:
        say(f"{client.redeliver(name)} events queued for delivery")


def rm(name: Name, url: SpaceUrl = None) -> None:
    """Remove a webhook and its undelivered events.

    Example: protoslice webhook rm ci
    """
    with connect(service_url(url)) as client:
        client.remove_webhook(name)

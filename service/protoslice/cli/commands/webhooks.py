"""The verbs about webhooks: `webhook put`, `ls`, `letters`, `redeliver`, `rm`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from protoslice.cli.commands.access import Service
from protoslice.cli.models.remote import client_of
from protoslice.cli.options import Json
from protoslice.cli.tables import note, print_json, print_table, say, utc
from protoslice.facts import EventLetter, WebhookFacts
from protoslice.references import service_url

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the webhook, as shown by `webhook ls`.")]


def put(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9 and '-', at most 63 characters.")],
    receiver: Annotated[str, typer.Argument(metavar="RECEIVER", help="URL that receives events by POST.")],
    event: Annotated[
        list[str] | None, typer.Option(metavar="EVENT", help="Event type, such as tag.set; repeatable; default: all.")
    ] = None,
    url: Service = None,
    as_json: Json = False,
) -> None:
    """Create or replace a webhook, and print its secret (only once).

    Example: protoslice webhook put ci https://ci.example/hooks/models --event ref.set
    """
    with client_of(service_url(url)) as client:
        made = client.put_webhook(name, receiver, events=event or ())
    if as_json:
        print_json(_facts(made))
        return
    print(made.secret)
    note(f"Webhook {made.name}: secret (shown only once)")


def ls(url: Service = None, as_json: Json = False) -> None:
    """List the webhooks of a space.

    Example: protoslice webhook ls --url http://models.example/spaces/team
    """
    with client_of(service_url(url)) as client:
        found = list(client.webhooks())
    if as_json:
        print_json([_facts(each) for each in found])
        return
    print_table(["name", "receiver", "events"], [[each.name, each.url, " ".join(each.events)] for each in found])


def letters(
    name: Name,
    dead: Annotated[
        bool, typer.Option("--dead", help="List events that failed permanently, instead of pending ones.")
    ] = False,
    url: Service = None,
    as_json: Json = False,
) -> None:
    """List the events not yet delivered to a webhook.

    Example: protoslice webhook letters ci --dead
    """
    with client_of(service_url(url)) as client:
        found = list(client.letters(name, dead=dead))
    if as_json:
        print_json([_facts(each) for each in found])
        return
    rows = [[each.id, each.type, each.subject, str(each.attempts), each.error] for each in found]
    print_table(["id", "event", "subject", "attempts", "error"], rows)


def redeliver(name: Name, url: Service = None) -> None:
    """Deliver the failed events of a webhook again.

    Example: protoslice webhook redeliver ci
    """
    with client_of(service_url(url)) as client:
        say(f"{client.redeliver(name)} events queued for delivery")


def rm(name: Name, url: Service = None) -> None:
    """Remove a webhook and its undelivered events.

    Example: protoslice webhook rm ci
    """
    with client_of(service_url(url)) as client:
        client.remove_webhook(name)


def _facts(of: WebhookFacts | EventLetter) -> dict[str, object]:
    facts = asdict(of)
    times = {"created", "written"} & facts.keys()
    return facts | {name: utc(facts[name]) for name in times}

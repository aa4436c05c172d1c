"""`hookmill delivery`: the log of what came, and what became of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hookmill.cli import explain, export, given, options
from hookmill.cli.output import Column, as_json, call, count, fields, line, on_terminal, table, utc
from hookmill.cli.run import print_runs
from hookmill.cli.session import session
from hookmill.domain.delivery import Label, joined
from hookmill.domain.errors import Invalid
from hookmill.domain.ids import WebhookUid, delivery_id, delivery_key
from hookmill.domain.text import shown, shown_lines
from hookmill.presentation.delivery import DETAILS, DeliveryView, DeliveryWithRunsView, DroppedAttemptsView, details
from hookmill.presentation.filter import ExplanationView
from hookmill.presentation.run import ReplayView
from hookmill.presentation.view import plain

if TYPE_CHECKING:
    from hookmill.domain.delivery import Delivery, DroppedAttempts
    from hookmill.management import AutomationMatch

commands = typer.Typer(no_args_is_help=True, help="The delivery log: what came, and what became of it.")

Id = Annotated[str, typer.Argument(metavar="DELIVERY", help="Its id, dlv_….", show_default=False)]

DROPPED_SHOWN: Final = 5


@commands.command("list")
def list_deliveries(
    webhook: options.WebhookFilter = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help='Only those with this label, such as accepted or "Rejected (auth)".'),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='Only from then on: "2026-11-21 09:12" (UTC), or 2h or 7d ago.'),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only from before then.")] = None,
    identity: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only this event: its id as the sender gave it, or its body's SHA-256."),
    ] = None,
    event: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only those that report an event of this type, such as push.")
    ] = None,
    limit: options.Limit = options.PAGE,
    before: Annotated[
        str | None, typer.Option(metavar="DELIVERY", help="Only older ones than this: the next page.")
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List the log, newest first. Attempts that were dropped without an entry are counted below it."""
    wanted = _label(label) if label is not None else None
    begins, ends = given.moment(since, "--since"), given.moment(until, "--until")
    if begins is not None and ends is not None and begins >= ends:
        raise typer.BadParameter("nothing lies between: --since must be before --until", param_hint="--since")
    with session(factory) as here:
        found = here.management.log.newest(
            here.may,
            webhook=webhook,
            label=wanted,
            since=begins,
            until=ends,
            identity=identity,
            event=event,
            before=delivery_key(before) if before is not None else None,
            limit=limit,
        )
        # Dropped attempts have no identity and no event type.
        counters = here.management.log.dropped_attempts(here.may, webhook) if identity is None and event is None else ()
        dropped = joined(one for one in counters if _is_within(one, begins, ends))
        names = {known.uid: known.name for known in here.management.webhooks.all(here.may, with_deleted=True)}
    if json:
        as_json(
            {
                "deliveries": [DeliveryView.of(delivery) for delivery in found],
                "dropped_attempts": [DroppedAttemptsView.of(one) for one in dropped],
            }
        )
        return
    if not found:
        is_narrowed = any(option is not None for option in (webhook, label, since, until, identity, event))
        older = "older " if before is not None else ""
        line(f"The log has no {older}deliveries{' that match' if is_narrowed else ''}.")
        if not (is_narrowed or before or dropped):
            line(f"To send a sample: {call('send WEBHOOK', factory)}")
    else:
        print_deliveries(found)
        if len(found) == limit:
            kept = {
                "webhook": webhook,
                "label": label,
                "since": since,
                "until": until,
                "identity": identity,
                "event": event,
                "limit": limit if limit != options.PAGE else None,
                "before": delivery_id(found[-1].key),
            }
            line(f"Older ones: {call('delivery list', factory, **kept)}")
    _print_dropped(dropped, names)


@commands.command()
def show(delivery: Id, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show one delivery. With what it started, and what each automation makes of it now."""
    with session(factory) as here:
        found = here.management.log.get(here.may, delivery)
        runs = here.management.runs.of_delivery(here.may, delivery)
        # Without a payload there is nothing to judge by.
        judged = here.management.filters.explain(here.may, delivery) if found.label is Label.ACCEPTED else ()
    if json:
        as_json(plain(DeliveryWithRunsView.with_runs(found, runs)) | plain(ExplanationView.of(judged)))
        return
    pairs = [
        ("Delivery", delivery_id(found.key)),
        ("Webhook", f"{shown(found.webhook_name)} ({found.webhook_uid})"),
        ("Received", f"{utc(found.received_at)} UTC"),
        ("Label", found.label.shown),
    ]
    pairs += [(title, shown(text)) for title, text in details(found)]
    pairs.append(("Size", f"{found.size:,} bytes"))
    if found.identity_kind is not None:
        pairs.append(("Identity", _identity(found)))
    if found.duplicate_of is not None:
        pairs.append(("Duplicate of", delivery_id(found.duplicate_of)))
    fields(pairs)
    line()
    if found.label is not Label.ACCEPTED:
        line("It started no runs: only Accepted deliveries do.")
        return
    if runs:
        line("It started:")
        print_runs(runs)
    else:
        line("It started no runs: no enabled automation matched.")
    _print_judged(judged)


@commands.command()
def payload(
    delivery: Id,
    output: options.OutputFile = None,
    factory: options.FactoryName = "default",
) -> None:
    """Write a delivery's body, byte for byte. It is kept for Accepted deliveries only."""
    with session(factory) as here:
        body = here.management.log.payload(here.may, delivery)
    if output is not None:
        try:
            Path(output).write_bytes(body)
        except OSError as error:
            raise Invalid(f"{shown(output)} can't be written: {error.strerror}.") from None
        line(f"{len(body):,} bytes written to {shown(output)}.")
        return
    if on_terminal():
        # A terminal obeys what a file merely holds; in JSON the spelled-out form even means the same.
        line(shown_lines(body.decode("utf-8", "backslashreplace")))
        return
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()


@commands.command()
def replay(
    delivery: Id,
    automation: Annotated[
        str | None,
        typer.Option(metavar="AUTOMATION", help="Only this one, instead of every enabled one that it triggers."),
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Start new runs of a delivery. With the automations as they are now; the log stays as it is."""
    with session(factory) as here:
        started = here.management.log.replay(here.may, delivery, automation)
    if json:
        as_json(ReplayView.of(started))
        return
    line(f"Started {count(len(started), 'run')}:")
    print_runs(started)


@commands.command("export")
def export_deliveries(
    webhook: options.WebhookFilter = None,
    output: options.OutputFile = None,
    factory: options.FactoryName = "default",
) -> None:
    """Export the whole log as JSON lines, oldest first."""
    with session(factory) as here:

        def page_after(last: Delivery | None) -> Sequence[Delivery]:
            return here.management.log.oldest(here.may, webhook=webhook, after=last.key if last else None)

        pages = ([DeliveryView.of(delivery) for delivery in page] for page in export.all_pages(page_after))
        export.write(pages, output, "delivery")


def print_deliveries(deliveries: Sequence[Delivery]) -> None:
    # Most deliveries have none of these: a column of blanks would only take room.
    listed = [
        (detail.title.upper(), detail.listed)
        for detail in DETAILS
        if detail.listed is not None and any(map(detail.listed, deliveries))
    ]
    table(
        [
            Column("RECEIVED (UTC)", whole=True),
            Column("DELIVERY", whole=True, stacked=True),
            Column("LABEL"),
            *(Column(title) for title, _ in listed),
            Column("SIZE", whole=True, right=True),
            Column("WEBHOOK"),
        ],
        [
            (
                utc(delivery.received_at),
                delivery_id(delivery.key),
                delivery.label.shown,
                *(of(delivery) or "" for _, of in listed),
                str(delivery.size),
                delivery.webhook_name,
            )
            for delivery in deliveries
        ],
    )


def _label(named: str) -> Label:
    for label in Label:
        if named.lower() in {label.shown.lower(), label.name.lower()}:
            return label
    known = ", ".join(label.name.lower() for label in Label)
    raise typer.BadParameter(f"no label is called {shown(named)!r}. The labels are: {known}", param_hint="--label")


_IDENTITY_FROM: Final = {
    "delivery_id_header": "the webhook's own delivery id header",
    "provider": "the provider's delivery id",
    "sender": "the X-Service-Delivery-Id or X-Warp-Delivery-Id header",
}


def _identity(delivery: Delivery) -> str:
    kind = delivery.identity_kind.shown if delivery.identity_kind is not None else ""
    if delivery.identity is None:
        return "the body's SHA-256: the sender gave no id"
    return f"{shown(delivery.identity)} (from {_IDENTITY_FROM.get(kind, kind)})"


# What automations make of it


def _print_judged(judged: Sequence[AutomationMatch]) -> None:
    line()
    if not judged:
        line("There are no automations now.")
        return
    selecting = [one for one in judged if any(test.webhook_check for test in one.triggers)]
    others = [one for one in judged if one not in selecting]
    line("As the automations are now:" if selecting else "No automation selects this webhook now:")
    for one in selecting:
        off = "" if one.automation.enabled else ": it is disabled"
        line()
        line(f"{shown(one.automation.name)}: {explain.verdict(one.would_trigger)}{off}")
        for test in one.triggers:
            explain.print_checks(test)
    if others:
        line()
    for one in others:
        line(f"{shown(one.automation.name)}: {explain.verdict(one.would_trigger)}. {explain.webhook_check(held=False)}")


# Dropped attempts


_REFUSED_FOR: Final = {
    "rate_limited": "over the rate limit",
    "failed_authentications": "over the rate limit of failed authentications",
    "not_found": "the webhook was disabled or deleted",
}


def _is_within(dropped: DroppedAttempts, begins: int | None, ends: int | None) -> bool:
    """Whether they may have been between these times."""
    return (begins is None or dropped.until > begins) and (ends is None or dropped.since < ends)


def _print_dropped(dropped: Sequence[DroppedAttempts], names: Mapping[WebhookUid, str]) -> None:
    if not dropped:
        return
    line()
    line("Dropped without an entry (UTC):")
    for one in dropped[:DROPPED_SHOWN]:
        since, until = utc(one.since)[:-3], utc(one.until)[:-3]
        until = until[-5:] if until[:10] == since[:10] else until
        cause = _REFUSED_FOR.get(one.kind, one.kind.replace("_", " "))
        name = shown(names.get(one.webhook_uid, one.webhook_uid))
        line(f"  {one.count:,} dropped between {since} and {until}: {cause} ({name})")
    if len(dropped) > DROPPED_SHOWN:
        line(f"  {count(len(dropped) - DROPPED_SHOWN, 'earlier time range')}: --json shows them all")

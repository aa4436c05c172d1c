"""`hookmill delivery`: the delivery log."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hookmill.cli import explain, export, inputs, options
from hookmill.cli.output import (
    Column,
    command_line,
    count,
    on_terminal,
    print_fields,
    print_json,
    print_line,
    print_table,
    utc,
)
from hookmill.cli.run import print_runs
from hookmill.cli.session import factory_session
from hookmill.domain.activity import RATE_LIMIT_ADVICE, RATE_LIMITED
from hookmill.domain.delivery import Label, merge_adjacent
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

commands = typer.Typer(no_args_is_help=True, help="The delivery log: received deliveries and their results.")

DeliveryArgument = Annotated[
    str, typer.Argument(metavar="DELIVERY", help="The delivery's id, dlv_….", show_default=False)
]

DROPPED_RANGES_SHOWN_MAX: Final = 5


@commands.command("list")
def list_deliveries(
    webhook: options.OnlyWebhook = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help='Only deliveries with this label, such as accepted or "Rejected (auth)".'),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='Only from this time on: "2026-11-21 09:12" (UTC), or 2h or 7d ago.'),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only before this time.")] = None,
    identity: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only this event: its id, or the SHA-256 of its body."),
    ] = None,
    event: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only deliveries with this event type, such as push.")
    ] = None,
    limit: options.Limit = options.PAGE_ROWS,
    before: Annotated[
        str | None, typer.Option(metavar="DELIVERY", help="Only deliveries older than this one: the next page.")
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """List the log, newest first. Below it, count the attempts that were dropped without an entry."""
    wanted_label = _label_named(label) if label is not None else None
    since_us, until_us = inputs.parse_time(since, "--since"), inputs.parse_time(until, "--until")
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise typer.BadParameter("--since must be before --until", param_hint="--since")
    with factory_session(factory) as session:
        deliveries = session.management.log.newest(
            session.may,
            webhook=webhook,
            label=wanted_label,
            since=since_us,
            until=until_us,
            identity=identity,
            event=event,
            before=delivery_key(before) if before is not None else None,
            limit=limit,
        )
        # Dropped attempts have no identity and no event type.
        counters = (
            session.management.log.dropped_attempts(session.may, webhook) if identity is None and event is None else ()
        )
        dropped_ranges = merge_adjacent(counter for counter in counters if _overlaps(counter, since_us, until_us))
        names_by_uid = {
            webhook_row.uid: webhook_row.name
            for webhook_row in session.management.webhooks.all(session.may, with_deleted=True)
        }
    if json:
        print_json(
            {
                "items": [DeliveryView.of(delivery) for delivery in deliveries],
                "dropped_attempts": [DroppedAttemptsView.of(time_range) for time_range in dropped_ranges],
            }
        )
        return
    if not deliveries:
        is_narrowed = any(option is not None for option in (webhook, label, since, until, identity, event))
        older = "older " if before is not None else ""
        print_line(f"The log has no {older}deliveries{' that match' if is_narrowed else ''}.")
        if not (is_narrowed or before or dropped_ranges):
            print_line(f"To send a sample: {command_line('send WEBHOOK', factory)}")
    else:
        print_deliveries(deliveries)
        if len(deliveries) == limit:
            same_options = {
                "webhook": webhook,
                "label": label,
                "since": since,
                "until": until,
                "identity": identity,
                "event": event,
                "limit": limit if limit != options.PAGE_ROWS else None,
                "before": delivery_id(deliveries[-1].key),
            }
            print_line(f"Older deliveries: {command_line('delivery list', factory, **same_options)}")
    _print_dropped(dropped_ranges, names_by_uid)


@commands.command()
def show(identifier: DeliveryArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show one delivery and its runs. Also shows how each automation evaluates it now."""
    with factory_session(factory) as session:
        delivery = session.management.log.get(session.may, identifier)
        runs = session.management.runs.of_delivery(session.may, identifier)
        # Only Accepted deliveries have a payload to evaluate.
        matches = (
            session.management.filters.explain(session.may, identifier) if delivery.label is Label.ACCEPTED else ()
        )
    if json:
        print_json(plain(DeliveryWithRunsView.with_runs(delivery, runs)) | plain(ExplanationView.of(matches)))
        return
    pairs = [
        ("Delivery", delivery_id(delivery.key)),
        ("Webhook", f"{shown(delivery.webhook_name)} ({delivery.webhook_uid})"),
        ("Received", f"{utc(delivery.received_at)} UTC"),
        ("Label", delivery.label.wording),
    ]
    pairs += [(title, shown(text)) for title, text in details(delivery)]
    pairs.append(("Size", f"{delivery.size:,} bytes"))
    if delivery.identity_kind is not None:
        pairs.append(("Identity", _identity_text(delivery)))
    if delivery.duplicate_of is not None:
        pairs.append(("Duplicate of", delivery_id(delivery.duplicate_of)))
    print_fields(pairs)
    print_line()
    if delivery.label is not Label.ACCEPTED:
        print_line("It started no runs: only Accepted deliveries do.")
        return
    if runs:
        print_line("It started:")
        print_runs(runs)
    else:
        print_line("It started no runs: no enabled automation matched.")
    _print_matches(matches)


@commands.command()
def payload(
    identifier: DeliveryArgument,
    output: options.OutputFile = None,
    factory: options.FactoryName = "default",
) -> None:
    """Write an Accepted delivery's body, byte for byte. The log keeps no other bodies."""
    with factory_session(factory) as session:
        body = session.management.log.payload(session.may, identifier)
    if output is not None:
        try:
            Path(output).write_bytes(body)
        except OSError as error:
            raise Invalid(f"{shown(output)} can't be written: {error.strerror}.") from None
        print_line(f"Wrote {len(body):,} bytes to {shown(output)}.")
        return
    if on_terminal():
        # A terminal would execute control characters. The output stays valid JSON, because the escapes mean the same
        # characters there.
        print_line(shown_lines(body.decode("utf-8", "backslashreplace")))
        return
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()


@commands.command()
def replay(
    identifier: DeliveryArgument,
    automation: Annotated[
        str | None,
        typer.Option(metavar="AUTOMATION", help="Only this automation, not every enabled one that matches."),
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Start new runs of a delivery. It uses the automations that match now; the log does not change."""
    with factory_session(factory) as session:
        started_runs = session.management.log.replay(session.may, identifier, automation)
    if json:
        print_json(ReplayView.of(started_runs))
        return
    print_line(f"Started {count(len(started_runs), 'run')}:")
    print_runs(started_runs)


@commands.command("export")
def export_deliveries(
    webhook: options.OnlyWebhook = None,
    output: options.OutputFile = None,
    factory: options.FactoryName = "default",
) -> None:
    """Export the whole log as JSON lines, oldest first."""
    with factory_session(factory) as session:

        def page_after(last: Delivery | None) -> Sequence[Delivery]:
            return session.management.log.oldest(session.may, webhook=webhook, after=last.key if last else None)

        pages = ([DeliveryView.of(delivery) for delivery in page] for page in export.all_pages(page_after))
        export.write(pages, output, "delivery")


def print_deliveries(deliveries: Sequence[Delivery]) -> None:
    # Most deliveries have none of these details. A column without values is omitted.
    list_columns = [
        (detail.title.upper(), detail.list_text_for)
        for detail in DETAILS
        if detail.list_text_for is not None and any(map(detail.list_text_for, deliveries))
    ]
    print_table(
        [
            Column("RECEIVED (UTC)", no_wrap=True),
            Column("DELIVERY", no_wrap=True, moves_below_if_narrow=True),
            Column("LABEL"),
            *(Column(title) for title, _ in list_columns),
            Column("SIZE", no_wrap=True, align_right=True),
            Column("WEBHOOK"),
        ],
        [
            (
                utc(delivery.received_at),
                delivery_id(delivery.key),
                delivery.label.wording,
                *(cell_of(delivery) or "" for _, cell_of in list_columns),
                str(delivery.size),
                delivery.webhook_name,
            )
            for delivery in deliveries
        ],
    )


def _label_names(label: Label) -> str:
    name = label.name.lower()
    return name if name == label.wording.lower() else f'{name} or "{label.wording}"'


def _label_named(text: str) -> Label:
    for label in Label:
        if text.lower() in {label.wording.lower(), label.name.lower()}:
            return label
    names = ", ".join(_label_names(label) for label in Label)
    raise typer.BadParameter(f"there is no label {shown(text)!r}. Labels are: {names}", param_hint="--label")


_IDENTITY_SOURCES: Final = {
    "delivery_id_header": "the webhook's own delivery id header",
    "provider": "the provider's delivery id",
    "sender": "the X-Service-Delivery-Id or X-Warp-Delivery-Id header",
}


def _identity_text(delivery: Delivery) -> str:
    kind = delivery.identity_kind.public_name if delivery.identity_kind is not None else ""
    if delivery.identity is None:
        return "the body's SHA-256, because the sender supplied no id"
    return f"{shown(delivery.identity)} (from {_IDENTITY_SOURCES.get(kind, kind)})"


# How automations evaluate a delivery


def _print_matches(matches: Sequence[AutomationMatch]) -> None:
    print_line()
    if not matches:
        print_line("There are no automations now.")
        return
    selecting_matches = [match for match in matches if any(test.webhook_check for test in match.trigger_tests)]
    others = [match for match in matches if match not in selecting_matches]
    print_line(
        "How the automations evaluate it now:" if selecting_matches else "No automation selects this webhook now:"
    )
    for match in selecting_matches:
        disabled_note = "" if match.automation.enabled else ": it is disabled"
        print_line()
        print_line(f"{shown(match.automation.name)}: {explain.result_text(match.would_trigger)}{disabled_note}")
        for test in match.trigger_tests:
            explain.print_checks(test)
    if others:
        print_line()
    for match in others:
        reason = explain.webhook_check_line(passed=False)
        print_line(f"{shown(match.automation.name)}: {explain.result_text(match.would_trigger)}. {reason}")


# Dropped attempts


_DROP_REASONS: Final = {
    "rate_limited": "over the rate limit",
    "failed_authentications": "over the rate limit for failed authentications",
    "not_found": "the webhook was disabled or deleted",
}


def _overlaps(dropped: DroppedAttempts, since_us: int | None, until_us: int | None) -> bool:
    """Whether the time range of the dropped attempts overlaps the range from `since_us` to `until_us`."""
    return (since_us is None or dropped.until > since_us) and (until_us is None or dropped.since < until_us)


def _print_dropped(dropped_ranges: Sequence[DroppedAttempts], names_by_uid: Mapping[WebhookUid, str]) -> None:
    if not dropped_ranges:
        return
    print_line()
    print_line("Dropped without an entry (UTC):")
    for time_range in dropped_ranges[:DROPPED_RANGES_SHOWN_MAX]:
        since, until = utc(time_range.since)[:-3], utc(time_range.until)[:-3]
        until = until[-5:] if until[:10] == since[:10] else until
        cause = _DROP_REASONS.get(time_range.kind, time_range.kind.replace("_", " "))
        name = shown(names_by_uid.get(time_range.webhook_uid, time_range.webhook_uid))
        print_line(f"  {time_range.count:,} dropped between {since} and {until}: {cause} ({name})")
    if len(dropped_ranges) > DROPPED_RANGES_SHOWN_MAX:
        print_line(
            f"  {count(len(dropped_ranges) - DROPPED_RANGES_SHOWN_MAX, 'earlier time range')}: --json shows them all"
        )
    if any(time_range.kind == RATE_LIMITED for time_range in dropped_ranges):
        print_line(RATE_LIMIT_ADVICE)

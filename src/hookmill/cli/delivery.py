"""`hookmill delivery`: the delivery log."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from hookmill.cli import explain, export, inputs, options
from hookmill.cli.connection import connected
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
from hookmill.domain.activity import RATE_LIMIT_ADVICE, RATE_LIMITED
from hookmill.domain.delivery import DroppedAttempts, Label, merge_adjacent
from hookmill.domain.errors import Invalid
from hookmill.domain.ids import WebhookUid
from hookmill.domain.moment import iso, parse_iso
from hookmill.domain.text import shown, shown_lines
from hookmill.presentation.delivery import DETAILS, DroppedAttemptsView, details_in_json

if TYPE_CHECKING:
    from hookmill.client import Client
    from hookmill.client.types import DeliveryJson, DeliveryWithRunsJson, DroppedAttemptsJson, EvaluationJson

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
    inputs.require_id(before, "dlv")
    with connected() as client:
        deliveries = list(
            client.list_deliveries(
                factory,
                webhook=webhook,
                label=cast(Any, wanted_label.wording) if wanted_label is not None else None,
                since=iso(since_us) if since_us is not None else None,
                until=iso(until_us) if until_us is not None else None,
                identity=identity,
                event=event,
                limit=limit,
                cursor=before,
            )
        )
        # Dropped attempts have no identity and no event type.
        counters = client.list_dropped_attempts(factory, webhook=webhook) if identity is None and event is None else ()
        dropped_ranges = merge_adjacent(
            counter for counter in map(_dropped_attempts, counters) if _overlaps(counter, since_us, until_us)
        )
        names_by_uid = _webhook_names(client, factory)
    if json:
        print_json(
            {
                "items": deliveries,
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
        print_deliveries(deliveries, names_by_uid)
        if len(deliveries) == limit:
            same_options = {
                "webhook": webhook,
                "label": label,
                "since": since,
                "until": until,
                "identity": identity,
                "event": event,
                "limit": limit if limit != options.PAGE_ROWS else None,
                "before": deliveries[-1]["delivery_id"],
            }
            print_line(f"Older deliveries: {command_line('delivery list', factory, **same_options)}")
    _print_dropped(dropped_ranges, names_by_uid)


@commands.command()
def show(identifier: DeliveryArgument, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Show one delivery and its runs. Also shows how each automation evaluates it now."""
    inputs.require_id(identifier, "dlv")
    with connected() as client:
        delivery = client.show_delivery(factory, identifier)
        # Only Accepted deliveries have a payload to evaluate.
        is_accepted = delivery["label"] == Label.ACCEPTED.wording
        matches = client.explain_delivery(factory, identifier)["automations"] if is_accepted else []
        webhook_name = _webhook_names(client, factory)[WebhookUid(delivery["webhook_uid"])]
    if json:
        print_json({**delivery, "automations": matches})
        return
    pairs = [
        ("Delivery", delivery["delivery_id"]),
        ("Webhook", f"{shown(webhook_name)} ({delivery['webhook_uid']})"),
        ("Received", f"{utc(delivery['received_at'])} UTC"),
        ("Label", delivery["label"]),
    ]
    pairs += [(title, shown(text)) for title, text in details_in_json(delivery)]
    pairs.append(("Size", f"{delivery['size']:,} bytes"))
    if delivery["identity_kind"] is not None:
        pairs.append(("Identity", _identity_text(delivery)))
    if delivery["duplicate_of"] is not None:
        pairs.append(("Duplicate of", delivery["duplicate_of"]))
    print_fields(pairs)
    print_line()
    if not is_accepted:
        print_line("It started no runs: only Accepted deliveries do.")
        return
    if delivery["runs"]:
        print_line("It started:")
        print_runs(delivery["runs"])
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
    inputs.require_id(identifier, "dlv")
    with connected() as client:
        body = client.download_payload(factory, identifier).read()
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
    inputs.require_id(identifier, "dlv")
    with connected() as client:
        replay_result = client.replay_delivery(factory, identifier, automation=automation)
    if json:
        print_json(replay_result)
        return
    print_line(f"Started {count(len(replay_result['runs']), 'run')}:")
    print_runs(replay_result["runs"])


@commands.command("export")
def export_deliveries(
    webhook: options.OnlyWebhook = None,
    output: options.OutputFile = None,
    factory: options.FactoryName = "default",
) -> None:
    """Export the whole log as JSON lines, oldest first."""
    with connected() as client:
        export.write(
            ([row] for row in client.list_deliveries(factory, webhook=webhook, oldest_first=True)), output, "delivery"
        )


def print_deliveries(deliveries: Sequence[DeliveryJson], names_by_uid: Mapping[WebhookUid, str]) -> None:
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
                utc(delivery["received_at"]),
                delivery["delivery_id"],
                delivery["label"],
                *(cell_of(delivery) or "" for _, cell_of in list_columns),
                str(delivery["size"]),
                names_by_uid[WebhookUid(delivery["webhook_uid"])],
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


def _identity_text(delivery: DeliveryWithRunsJson) -> str:
    kind = delivery["identity_kind"] or ""
    if delivery["identity"] is None:
        return "the body's SHA-256, because the sender supplied no id"
    return f"{shown(delivery['identity'])} (from {_IDENTITY_SOURCES.get(kind, kind)})"


def _webhook_names(client: Client, factory: str) -> dict[WebhookUid, str]:
    webhooks = client.list_webhooks(factory, deleted=True)
    return {WebhookUid(webhook["uid"]): webhook["name"] for webhook in webhooks}


# How automations evaluate a delivery


def _print_matches(matches: Sequence[EvaluationJson]) -> None:
    print_line()
    if not matches:
        print_line("There are no automations now.")
        return
    selecting_matches = [match for match in matches if any(test["webhook_check"] for test in match["triggers"])]
    others = [match for match in matches if match not in selecting_matches]
    print_line(
        "How the automations evaluate it now:" if selecting_matches else "No automation selects this webhook now:"
    )
    for match in selecting_matches:
        disabled_note = "" if match["enabled"] else ": it is disabled"
        print_line()
        print_line(f"{shown(match['automation'])}: {explain.result_text(match['would_trigger'])}{disabled_note}")
        for test in match["triggers"]:
            explain.print_checks(test)
    if others:
        print_line()
    for match in others:
        reason = explain.webhook_check_line(passed=False)
        print_line(f"{shown(match['automation'])}: {explain.result_text(match['would_trigger'])}. {reason}")


# Dropped attempts


_DROP_REASONS: Final = {
    "rate_limited": "over the rate limit",
    "failed_authentications": "over the rate limit for failed authentications",
    "not_found": "the webhook was disabled or deleted",
}


def _dropped_attempts(counter: DroppedAttemptsJson) -> DroppedAttempts:
    return DroppedAttempts(
        webhook_uid=WebhookUid(counter["webhook_uid"]),
        kind=counter["kind"],
        since=parse_iso(counter["since"]),
        until=parse_iso(counter["until"]),
        count=counter["count"],
    )


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

"""`hookmill filter`: would this filter trigger, and why? And what would it have triggered on so far?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookmill.cli import explain, given, options, progress
from hookmill.cli.delivery import print_deliveries
from hookmill.cli.output import as_json, call, line
from hookmill.cli.session import session
from hookmill.domain.errors import Conflict
from hookmill.domain.ids import delivery_id
from hookmill.domain.limits import BACKTEST_MAX, BODY_BYTES_MAX
from hookmill.presentation.filter import BacktestView

if TYPE_CHECKING:
    from hookmill.cli.session import Session
    from hookmill.management import FilterTest

commands = typer.Typer(no_args_is_help=True, help="Filters: would this one trigger, and why?")

EventTypes = Annotated[
    list[str] | None,
    typer.Option("--event", metavar="TYPE", help="Only events of this type. May be repeated: any of these."),
]


@commands.command("test")
def would_trigger(
    delivery: Annotated[
        str | None, typer.Option(metavar="DELIVERY", help="Test on this delivery of the log, dlv_….")
    ] = None,
    body: Annotated[
        str | None, typer.Option(metavar="FILE", help="Test on the JSON in this file; - for standard input.")
    ] = None,
    chosen: Annotated[str | None, typer.Option("--filter", metavar="JSON", help="The payload filter to test.")] = None,
    filter_file: Annotated[str | None, typer.Option(metavar="FILE", help="The payload filter, in a file.")] = None,
    event: EventTypes = None,
    automation: Annotated[
        str | None, typer.Option(metavar="AUTOMATION", help="Test the triggers of this automation (name or id).")
    ] = None,
    body_event: Annotated[
        str | None, typer.Option(metavar="TYPE", help="With --body: the event type that comes with it.")
    ] = None,
    webhook: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WEBHOOK", help="The webhooks that the trigger selects; all, unless given. May be repeated."
        ),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with exit code 1 when it would not trigger.")
    ] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Test a filter on a delivery. It may be one of the log, or a body of your own."""
    given.exactly_one(delivery=delivery, body=body)
    given.at_most_one(filter=chosen, filter_file=filter_file, automation=automation)
    given.at_most_one(event=event or None, automation=automation)
    given.one_or_more(filter=chosen, filter_file=filter_file, event=event or None, automation=automation)
    given.at_most_one(delivery=delivery, body_event=body_event)
    if webhook and (delivery is None or automation is not None):
        raise typer.BadParameter("--webhook goes with --delivery and a filter of your own", param_hint="--webhook")
    webhook_known = delivery is not None
    payload_filter = given.filter_in(chosen, filter_file)
    if delivery is None and automation is None:
        content = given.bytes_of(str(body), "The body file", BODY_BYTES_MAX)
        tests = [_on_body(payload_filter, event, content, body_event)]
    else:
        with session(factory) as here:
            tests = _in_store(here, delivery, (body, body_event), (payload_filter, event), automation, webhook)

    if not tests:
        raise Conflict(
            f"Automation {automation!r} has no trigger that can be read. To see why: hookmill automation show."
        )
    # One trigger that passes is enough; when none does, the first one's reasons are as good as any.
    deciding = next((one for one in tests if one.would_trigger), tests[0])
    if json:
        triggers = [explain.checks_as_json(one, webhook_known=webhook_known) for one in tests]
        as_json(explain.checks_as_json(deciding, webhook_known=webhook_known) | {"triggers": triggers})
    else:
        line(explain.verdict(deciding.would_trigger))
        for number, one in enumerate(tests, 1):
            if len(tests) > 1:
                line(f"Trigger {number}: {explain.verdict(one.would_trigger)}")
            explain.print_checks(one, webhook_known=webhook_known)
    if exit_code and not deciding.would_trigger:
        raise typer.Exit(1)


@commands.command()
def backtest(
    chosen: Annotated[str | None, typer.Option("--filter", metavar="JSON", help="The payload filter to test.")] = None,
    filter_file: Annotated[str | None, typer.Option(metavar="FILE", help="The payload filter, in a file.")] = None,
    event: EventTypes = None,
    webhook: Annotated[
        list[str] | None,
        typer.Option(metavar="WEBHOOK", help="Only on deliveries of this webhook (name or uid). May be repeated."),
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=BACKTEST_MAX, metavar="N", help="On how many deliveries.")] = 50,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Test a filter on the last deliveries. Which of them would it have triggered on, and which not?"""
    given.at_most_one(filter=chosen, filter_file=filter_file)
    given.one_or_more(filter=chosen, filter_file=filter_file, event=event or None)
    payload_filter = given.filter_in(chosen, filter_file)
    with session(factory) as here, progress.waiting("Testing the last deliveries"):
        found = here.management.filters.backtest(
            here.may, payload_filter=payload_filter, event_types=event or None, webhook_ids=webhook or None, last=last
        )
    if json:
        as_json(BacktestView.of(found))
        return
    tested = len(found.matching) + len(found.others)
    if not tested:
        line("There is no Accepted delivery to test on yet.")
        return
    line(f"Matches {len(found.matching)} of the last {tested} Accepted.")
    for said, deliveries in (("Matching:", found.matching), ("Not matching:", found.others)):
        if deliveries:
            line()
            line(said)
            print_deliveries(deliveries)
    if found.others:
        why = {"filter": chosen, "filter_file": filter_file}
        line()
        line(f"Why not: {call('filter test', factory, delivery=delivery_id(found.others[0].key), event=event, **why)}")


def _on_body(payload_filter: Any, event_types: list[str] | None, body: bytes, event: str | None) -> FilterTest:
    from hookmill.management import draft_filter, evaluate_filter

    return evaluate_filter(draft_filter(payload_filter, event_types or None), body, event=event)


def _in_store(
    here: Session,
    delivery: str | None,
    body: tuple[str | None, str | None],
    draft: tuple[Any, list[str] | None],
    automation: str | None,
    selected: list[str] | None,
) -> list[FilterTest]:
    """The tests that need the store: for the delivery, for the automation, or for both. `body` comes with its event
    type, and the payload filter of the draft with the event types that it takes."""
    from hookmill.management import evaluate_filter

    if delivery is None:
        path, event = body
        content = given.bytes_of(str(path), "The body file", BODY_BYTES_MAX)
        triggers = here.management.automations.get(here.may, str(automation)).triggers
        return [evaluate_filter(trigger, content, event=event) for trigger in triggers]
    if automation is not None:
        return [
            here.management.filters.test(
                here.may,
                delivery,
                payload_filter=trigger.payload.source if trigger.payload is not None else None,
                event_types=trigger.event_types or None,
                webhook_ids=trigger.webhook_ids,
            )
            for trigger in here.management.automations.get(here.may, automation).triggers
        ]
    uids = [here.management.webhooks.get(here.may, named).uid for named in selected] if selected else None
    payload_filter, event_types = draft
    tested = here.management.filters.test(
        here.may, delivery, payload_filter=payload_filter, event_types=event_types or None, webhook_ids=uids
    )
    return [tested]

"""`hookmill filter`: test a filter on one delivery, or on the last ones."""

from __future__ import annotations

from typing import Annotated

import typer

from hookmill.cli import explain, inputs, options, progress
from hookmill.cli.delivery import print_deliveries
from hookmill.cli.output import command_line, print_json, print_line
from hookmill.cli.session import factory_session
from hookmill.domain.errors import Conflict
from hookmill.domain.ids import delivery_id
from hookmill.domain.limits import BACKTEST_DELIVERIES_MAX, BODY_BYTES_MAX
from hookmill.domain.run_policy import RunPolicy
from hookmill.domain.spec import read
from hookmill.presentation.delivery import DeliveryView
from hookmill.presentation.filter import BacktestView, FilterTestView, policy_outcome
from hookmill.presentation.view import plain

commands = typer.Typer(no_args_is_help=True, help="Filters: test a filter on deliveries.")

FilterJson = Annotated[str | None, typer.Option("--filter", metavar="JSON", help="The payload filter to test.")]


@commands.command("test")
def run_filter_test(
    delivery: Annotated[
        str | None, typer.Option(metavar="DELIVERY", help="Test on this delivery of the log, dlv_….")
    ] = None,
    body: Annotated[
        str | None, typer.Option(metavar="FILE", help="Test on the JSON in this file; - for standard input.")
    ] = None,
    filter_json: FilterJson = None,
    filter_file: options.FilterFile = None,
    event: options.EventTypes = None,
    automation: Annotated[
        str | None, typer.Option(metavar="AUTOMATION", help="Test the triggers of this automation (name or id).")
    ] = None,
    body_event: Annotated[
        str | None, typer.Option(metavar="TYPE", help="With --body: the event type of the body.")
    ] = None,
    webhook: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WEBHOOK",
            help="With --delivery: a webhook that the trigger selects. May be repeated; the default is all.",
        ),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with exit code 1 if the filter would not trigger.")
    ] = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Test a filter on one delivery. Use a delivery of the log, or a body from a file."""
    from hookmill.management import draft_filter, evaluate_filter

    inputs.require_exactly_one(delivery=delivery, body=body)
    inputs.require_at_most_one(filter=filter_json, filter_file=filter_file, automation=automation)
    inputs.require_at_most_one(event=event, automation=automation)
    inputs.require_at_least_one(filter=filter_json, filter_file=filter_file, event=event, automation=automation)
    inputs.require_at_most_one(delivery=delivery, body_event=body_event)
    if webhook and (delivery is None or automation is not None):
        raise typer.BadParameter(
            "--webhook needs --delivery, and --filter, --filter-file or --event", param_hint="--webhook"
        )
    shows_webhook_check = delivery is not None
    payload_filter = inputs.read_filter(filter_json, filter_file)
    filters = [draft_filter(payload_filter, event or None)]
    content = inputs.read_bytes(str(body), "The body file", BODY_BYTES_MAX) if delivery is None else b""
    if delivery is None and automation is None:
        tests = [evaluate_filter(filters[0], content, event=body_event)]
    else:
        with factory_session(factory) as session:
            if automation is not None:
                filters = list(session.management.automations.get(session.may, automation).filters)
            tests = [
                session.management.filters.test(
                    session.may,
                    delivery,
                    each,
                    webhooks=each.webhook_ids if automation is not None else webhook or None,
                )
                if delivery is not None
                else evaluate_filter(each, content, event=body_event)
                for each in filters
            ]

    if not tests:
        raise Conflict(f"Automation {automation!r} has no readable trigger. `hookmill automation show` says why.")
    # One matching trigger is enough. If none matches, show the reasons of the first one.
    deciding_test = next((test for test in tests if test.would_trigger), tests[0])
    if json:
        # A body has no webhook.
        unknown = {} if shows_webhook_check else {"webhook_check": None}
        triggers = [plain(FilterTestView.of(test)) | unknown for test in tests]
        print_json(plain(FilterTestView.of(deciding_test)) | unknown | {"triggers": triggers})
    else:
        print_line(explain.result_text(deciding_test.would_trigger))
        for number, test in enumerate(tests, 1):
            if len(tests) > 1:
                print_line(f"Trigger {number}: {explain.result_text(test.would_trigger)}")
            explain.print_checks(plain(FilterTestView.of(test)), shows_webhook_check=shows_webhook_check)
    if exit_code and not deciding_test.would_trigger:
        raise typer.Exit(1)


@commands.command()
def backtest(
    filter_json: FilterJson = None,
    filter_file: options.FilterFile = None,
    event: options.EventTypes = None,
    webhook: Annotated[
        list[str] | None,
        typer.Option(metavar="WEBHOOK", help="Only deliveries of this webhook (name or uid). May be repeated."),
    ] = None,
    last: Annotated[
        int, typer.Option(min=1, max=BACKTEST_DELIVERIES_MAX, metavar="N", help="The number of deliveries to test.")
    ] = 50,
    concurrency_key: Annotated[
        list[str] | None,
        typer.Option(metavar="POINTER", help="Count the keys that this JSON pointer gives to runs. May be repeated."),
    ] = None,
    debounce: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Count the runs that this quiet time would supersede.")
    ] = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Test a filter on the last deliveries. Lists those that match and those that don't."""
    inputs.require_at_most_one(filter=filter_json, filter_file=filter_file)
    inputs.require_at_least_one(
        filter=filter_json,
        filter_file=filter_file,
        event=event,
        concurrency_key=concurrency_key,
        debounce=debounce,
    )
    from hookmill.management import draft_filter

    policy = read(
        RunPolicy,
        {
            "concurrency": {"key": list(concurrency_key)} if concurrency_key else None,
            "debounce": {"seconds": debounce} if debounce is not None else None,
        },
    )
    payload_filter = inputs.read_filter(filter_json, filter_file)
    with factory_session(factory) as session, progress.activity_bar("Testing the last deliveries"):
        result = session.management.filters.backtest(
            session.may,
            draft_filter(payload_filter, event or None),
            webhooks=webhook or None,
            last=last,
            policy=policy,
        )
    if json:
        print_json(BacktestView.of(result))
        return
    tested = len(result.matching) + len(result.others)
    if not tested:
        print_line("There are no Accepted deliveries to test yet.")
        return
    print_line(f"{len(result.matching)} of the last {tested} Accepted deliveries match.")
    if (effect := policy_outcome(result)) is not None:
        print_line(effect)
    for heading, deliveries in (("Matching:", result.matching), ("Not matching:", result.others)):
        if deliveries:
            print_line()
            print_line(heading)
            print_deliveries(
                [plain(DeliveryView.of(delivery)) for delivery in deliveries],
                {delivery.webhook_uid: delivery.webhook_name for delivery in deliveries},
            )
    if result.others:
        filter_options = {"filter": filter_json, "filter_file": filter_file}
        print_line()
        delivery = delivery_id(result.others[0].key)
        print_line(f"Why not: {command_line('filter test', factory, delivery=delivery, event=event, **filter_options)}")

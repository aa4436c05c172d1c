"""The home page of a factory: what needs attention, the first steps, and the webhooks with their last 24 hours."""

from typing import Final

import pytest
from playwright.sync_api import expect

from hookmill.domain.activity import RATE_LIMITED, AttemptCounts
from hookmill.domain.delivery import Label
from hookmill.domain.ids import run_id
from hookmill.domain.permission import Role
from hookmill.domain.sample import FIRST_START_NAME, FIRST_START_PROMPT
from hookmill.domain.signatures.catalogue import find
from hookmill.domain.signatures.sign import sign
from hookmill.domain.webhook import AuthMode, WebhookState
from hookmill.management.activity import HOUR_US, Hour
from hookmill.web.dashboard.chart import HEIGHT, chart
from tests.dashboard.client import Dashboard, Elements, Visitor, dashboard_for_test, text_of
from tests.dashboard.conftest import expect_heading, press
from tests.support.automations import automation_created
from tests.support.triggers import cron_fired
from tests.support.world import World

AGREED: Final = "agreed upon"


def home_text(visitor: Visitor) -> str:
    answer = visitor.get("/f/default")
    assert answer.status == 200
    return text_of(answer.body)


def fail_to_authenticate(world: World) -> None:
    world.post(world.webhook("source"), b"1", token="wrong")


def exceed_the_rate_limit(world: World) -> None:
    webhook = world.webhook("source")
    for number in range(world.limits.deliveries_per_minute + 1):
        world.post(webhook, b"%d" % number)
    world.dropped_attempts(webhook)


def repeat_a_body(world: World) -> None:
    webhook = world.webhook("source")
    world.post(webhook, b"1")
    world.post(webhook, b"1")


def repeat_a_body_without_the_own_header(world: World) -> None:
    webhook = world.webhook("source", delivery_id_header="X-Event-Id")
    world.post(webhook, b"1")
    world.post(webhook, b"1")


def repeat_a_body_without_the_id_of_github(world: World) -> None:
    post_signed_by_github(world, AGREED, has_id=False)
    world.clock.advance(seconds=1)
    post_signed_by_github(world, AGREED, has_id=False)


def repeat_an_id(world: World) -> None:
    webhook = world.webhook("source")
    for body in (b"1", b"2"):
        world.post(webhook, body, headers={"X-Service-Delivery-Id": "event-1"})


def send_invalid_json(world: World) -> None:
    world.post(world.webhook("source"), b"<xml/>")


def replace_the_secret(world: World) -> None:
    world.management.webhooks.create(world.may, {"name": "source", "secret_name": "SOURCE"})
    world.management.secrets.replace(world.may, "SOURCE")


def post_signed_by_github(world: World, secret: str, body: bytes = b"{}", *, has_id: bool = True) -> None:
    """Send a delivery to the webhook `source`, which is created first if necessary."""
    names = [webhook.name for webhook in world.management.webhooks.all(world.may)]
    if "source" not in names:
        world.webhook("source", auth_mode=AuthMode.SIGNATURE, signature_scheme="github", secret=AGREED)
    webhook = world.management.webhooks.get(world.may, "source")
    headers = dict(sign(find("github"), secret, body, "", world.clock.now, "event-1").headers)
    if not has_id:
        headers = {name: value for name, value in headers.items() if name.lower() != "x-github-delivery"}
    world.request("POST", webhook.ingress_path(), headers=headers, body=body)


def create_without_secret(world: World) -> None:
    world.management.webhooks.create(
        world.may, {"name": "source", "auth_mode": AuthMode.SIGNATURE, "signature_scheme": "github"}
    )


def post_while_disabled(world: World) -> None:
    webhook = world.webhook("source")
    world.management.webhooks.set_enabled(world.may, webhook.webhook.uid, False)
    world.post(webhook, b"1")
    world.dropped_attempts(webhook)


def delete_a_selected_webhook(world: World) -> None:
    webhook = world.webhook("source")
    world.webhook("other")
    world.automation("listener", webhook)
    world.management.webhooks.delete(world.may, webhook.webhook.uid)


def delete_a_webhook_of_a_disabled_automation(world: World) -> None:
    webhook = world.webhook("source")
    world.automation("listener", webhook, enabled=False)
    world.management.webhooks.delete(world.may, webhook.webhook.uid)


def select_an_unknown_webhook(world: World) -> None:
    filters = {"webhook_ids": ["wh_nowhere"]}
    trigger = {"provider": "webhook", "event": "received", "filter": filters}
    automation_created(world.management, world.may, "listener", triggers=[trigger])


def receive_a_delivery(world: World) -> None:
    world.post(world.webhook("source"), b"1")


@pytest.mark.parametrize(
    ("cause", "concern", "link"),
    [
        (fail_to_authenticate, "source rejected 1 attempt for failed authentication", "&label=rejected_auth"),
        (exceed_the_rate_limit, "source dropped 1 attempt over its rate limit", "/deliveries?webhook="),
        (repeat_a_body, "source detected 1 of its last 1 duplicates by body hash only", "#delivery-id"),
        (repeat_a_body, "They have no event id. If they are different events", "#delivery-id"),
        (repeat_a_body_without_the_own_header, "lack the webhook's delivery id header, X-Event-Id.", "#delivery-id"),
        (
            repeat_a_body_without_the_id_of_github,
            "They lack the provider's event id (header x-github-delivery).",
            "&label=duplicate",
        ),
        (send_invalid_json, "source rejected 1 attempt with invalid JSON", "&label=rejected_invalid_json"),
        (replace_the_secret, "source uses an old value of its secret", "#secret"),
        (create_without_secret, "source has no secret yet", "#secret"),
        (post_while_disabled, "source received 1 attempt while it was disabled", "#state"),
        (delete_a_selected_webhook, "listener selects webhook “source”, which is deleted", "/automations/aut_"),
        (select_an_unknown_webhook, "listener selects wh_nowhere, which is not a webhook", "/automations/aut_"),
    ],
)
def test_home_shows_what_needs_attention_with_a_link_to_fix_it(dashboard, manager, cause, concern, link):
    cause(dashboard.world)

    page = Elements(manager.get("/f/default").body)

    assert concern in home_text(manager)
    buttons = [anchor for anchor in page.with_tag("a") if "small" in anchor.attributes.get("class", "")]
    assert [link in button.attributes["href"] for button in buttons] == [True]


def test_reason_of_a_failed_authentication_ends_with_one_full_stop(dashboard, manager):
    post_signed_by_github(dashboard.world, "another secret")

    text = home_text(manager)

    assert "Last reason: " in text
    assert ".." not in text


@pytest.mark.parametrize("cause", [receive_a_delivery, repeat_an_id, delete_a_webhook_of_a_disabled_automation])
def test_normal_operation_needs_no_attention(dashboard, manager, cause):
    cause(dashboard.world)

    assert "Needs attention" not in home_text(manager)


def test_concerns_that_lose_events_are_listed_first(dashboard, manager):
    repeat_a_body(dashboard.world)
    webhook = dashboard.world.webhook("zoo")
    dashboard.world.post(webhook, b"no JSON")

    text = home_text(manager)

    assert text.index("zoo rejected 1 attempt with invalid JSON") < text.index(
        "source detected 1 of its last 1 duplicates"
    )


def test_home_warns_that_the_disk_is_nearly_full(sqlite_store):
    for dashboard in dashboard_for_test(sqlite_store, lambda world: Dashboard(world, has_room=lambda: False)):
        assert "The disk is nearly full" in home_text(
            dashboard.member("mia@example.com", roles={"default": Role.VIEWER})
        )


def test_full_disk_rejects_forms_that_add_but_not_a_disable(dashboard, manager):
    webhook = dashboard.world.webhook("few").webhook
    path = f"/f/default/webhooks/{webhook.uid}"
    dashboard.world.has_room = False

    renamed = manager.post(f"{path}/change", {"revision": str(webhook.revision), "/name": "other"})
    disabled = manager.post(f"{path}/disable")
    (webhook,) = dashboard.management.webhooks.all(dashboard.world.may)
    dashboard.world.has_room = True

    assert renamed.status == 503
    assert "almost full, so nothing was changed" in renamed.body.decode()
    assert (disabled.status, webhook.name, webhook.state) == (303, "few", WebhookState.DISABLED)
    # The rejected form is also reported.
    dashboard.failures.clear()


def test_first_steps_are_shown_until_a_run_has_succeeded(dashboard, manager):
    world = dashboard.world
    webhook = world.webhook(FIRST_START_NAME)
    world.automation(FIRST_START_NAME, webhook, prompt=FIRST_START_PROMPT, payload={"to": ["first"]})

    def steps() -> str:
        return home_text(manager).partition("First steps")[2].partition("Webhooks")[0]

    assert "created at the first start: first. done" in steps()
    assert "printed it in the terminal" in steps()
    assert "A factory groups webhooks, automations, deliveries and runs. This factory is named default." in home_text(
        manager
    )
    delivery = world.post(webhook, b'{"to": "nobody"}').delivery_id
    assert "No delivery has started one yet" in steps()
    assert f"/f/default/deliveries/{delivery}" in manager.get("/f/default").body.decode()

    world.clock.advance(seconds=1)
    delivery = world.post(webhook, b'{"to": "first"}').delivery_id
    (run,) = world.management.runs.of_delivery(world.may, delivery)
    assert "A run is in progress: view the run. queued" in steps()
    assert f"/f/default/runs/{run_id(run.id)}" in manager.get("/f/default").body.decode()
    world.management.runs.cancel(world.may, run_id(run.id))
    assert "The last run did not succeed: view the run. cancelled" in steps()

    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")
    assert steps() == ""
    assert "A factory groups" not in home_text(manager)


def test_schedule_and_its_run_complete_no_first_step(dashboard, manager):
    world = dashboard.world
    world.webhook("ci")
    schedule = cron_fired("a", "@daily")
    automation = automation_created(world.management, world.may, "nightly", prompt="x", triggers=[schedule])
    world.management.automations.start_run(world.may, automation.id)
    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded', finished_at = 1")

    steps = home_text(manager).partition("First steps")[2].partition("Webhooks")[0]

    assert "nightly" not in steps
    assert steps.count("done") == 1


def test_command_that_sends_the_first_delivery_has_the_factory(dashboard):
    world = dashboard.world
    may = world.operator_of_new_factory("pay ship")
    world.management.webhooks.create(
        may, {"name": "ci", "auth_mode": AuthMode.SIGNATURE, "signature_scheme": "standard_webhooks"}
    )
    manager = dashboard.member("pat@example.com", roles={"pay ship": Role.MANAGER})

    for page in ("", "/deliveries"):
        assert "hookmill send ci --factory 'pay ship' on the server" in text_of(
            manager.get(f"/f/pay%20ship{page}").body
        )


@pytest.mark.parametrize(("role", "may_create"), [(Role.MANAGER, True), (Role.VIEWER, False)])
def test_home_of_an_empty_factory_explains_the_start(dashboard, role, may_create):
    member = dashboard.member("new@example.com", roles={"default": role})

    page = Elements(member.get("/f/default").body)

    assert "Start here" in page.text
    assert any("big" in link.attributes.get("class", "") for link in page.with_tag("a")) == may_create


def test_list_of_webhooks_redirects_to_the_home_page(manager):
    answer = manager.get("/f/default/webhooks")

    assert (answer.status, answer.headers["location"]) == (303, "/f/default")


def hours(*counts: AttemptCounts) -> list[Hour]:
    return [Hour(start=number * HOUR_US, counts=of_hour) for number, of_hour in enumerate(counts)]


def test_chart_has_a_summary_of_its_counts():
    drawn = chart(
        hours(
            AttemptCounts({Label.ACCEPTED: 2}),
            AttemptCounts(),
            AttemptCounts({Label.ACCEPTED: 1000, Label.REJECTED_AUTH: 1}, {RATE_LIMITED: 3}),
        )
    )

    assert drawn.summary == (
        "In the last 24 hours: 1,002 Accepted, 1 Rejected (auth), 3 Dropped (429). "
        "The busiest hour started at 02:00 UTC, with 1,004 in total."
    )


def test_chart_without_deliveries_is_empty():
    drawn = chart(hours(AttemptCounts(), AttemptCounts()))

    assert (drawn.parts, drawn.summary) == ((), "No deliveries in the last 24 hours.")


def test_labels_of_an_hour_are_stacked_up_to_the_full_height():
    [accepted, duplicate] = chart(hours(AttemptCounts({Label.ACCEPTED: 3, Label.DUPLICATE: 1}))).parts

    assert (accepted.path, duplicate.path) == (f"M120 {HEIGHT // 4}V{HEIGHT}", f"M120 0V{HEIGHT // 4}")


def test_one_delivery_among_a_million_is_drawn():
    [_, rejected] = chart(hours(AttemptCounts({Label.ACCEPTED: 1_000_000, Label.REJECTED_AUTH: 1}))).parts

    assert rejected.path == "M120 0V1"


def test_home_page_leads_to_the_first_successful_run(page, installation):
    page.goto("/f/default")
    open_page = page.context.new_page()
    open_page.goto("/f/default")
    steps = open_page.get_by_role("region", name="First steps")
    expect(steps).not_to_contain_text("Run succeeded")
    expect(steps).to_contain_text("first has no filter, so every delivery starts a run.")
    page.get_by_role("link", name="first", exact=True).first.click()
    page.goto(page.url + "#rotate")
    press(page, "Rotate secret now")
    secret = page.locator("#secret").inner_text()
    first = installation.management.webhooks.get(installation.may, "first")
    answer = installation.service.request(
        "POST", first.ingress_path(), headers={"Authorization": f"Bearer {secret}"}, body=b'{"it": "works"}'
    )
    page.goto("/f/default")

    assert answer.status == 202
    card = page.locator(".webhooks .card").filter(has=page.get_by_role("link", name="first", exact=True))
    expect(card).to_contain_text("Last delivery")
    expect(card.get_by_role("img", name="Deliveries to first by hour")).to_be_visible()
    expect(card).to_contain_text("1 Accepted")

    # The open page has updated itself.
    expect(steps).to_contain_text("Run succeeded: view the run. done")
    steps.get_by_role("link", name="view the run").click()
    expect_heading(open_page, "Run of first")
    page.goto("/f/default")
    expect_heading(page, "Webhooks")
    expect(page.get_by_role("region", name="First steps")).to_have_count(0)

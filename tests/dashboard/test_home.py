"""A factory's home: what needs attention first, then its webhooks and their last day."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.activity import RATE_LIMITED, AttemptCounts
from hookmill.domain.delivery import Label
from hookmill.domain.ids import run_id
from hookmill.domain.permission import Role
from hookmill.domain.sample import FIRST_START_NAME, FIRST_START_PROMPT
from hookmill.domain.webhook import AuthMode, WebhookState
from hookmill.management.activity import HOUR_US, Hour
from hookmill.web.dashboard.chart import HEIGHT, chart
from tests.dashboard.client import Dashboard, Elements, Visitor, dashboard_for_test
from tests.dashboard.conftest import Installation
from tests.support.world import World


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


@pytest.fixture
def manager(dashboard: Dashboard) -> Visitor:
    return dashboard.member("mia@example.com", roles={"default": Role.MANAGER})


def text(visitor: Visitor, path: str = "/f/default") -> str:
    """What the page says, with single spaces."""
    answer = visitor.get(path)
    assert answer.status == 200
    return " ".join(Elements(answer.body).text.split())


def fail_to_authenticate(world: World) -> None:
    world.post(world.webhook("source"), b"1", token="wrong")


def come_too_often(world: World) -> None:
    made = world.webhook("source")
    for number in range(world.limits.deliveries_per_minute + 1):
        world.post(made, b"%d" % number)
    world.dropped_attempts(made)


def repeat_a_body(world: World) -> None:
    made = world.webhook("source")
    world.post(made, b"1")
    world.post(made, b"1")


def repeat_an_id(world: World) -> None:
    made = world.webhook("source")
    for body in (b"1", b"2"):
        world.post(made, body, headers={"X-Service-Delivery-Id": "event-1"})


def send_no_json(world: World) -> None:
    world.post(world.webhook("source"), b"<xml/>")


def change_the_secret(world: World) -> None:
    world.management.webhooks.create(world.may, "source", secret_name="SOURCE")
    world.management.secrets.replace(world.may, "SOURCE")


def await_the_provider(world: World) -> None:
    world.management.webhooks.create(world.may, "source", auth_mode=AuthMode.SIGNATURE, signature_scheme="github")


def post_while_disabled(world: World) -> None:
    made = world.webhook("source")
    world.management.webhooks.set_enabled(world.may, made.webhook.uid, False)
    world.post(made, b"1")
    world.dropped_attempts(made)


def select_what_is_gone(world: World) -> None:
    made = world.webhook("source")
    world.webhook("other")
    world.automation("listener", made)
    world.management.webhooks.delete(world.may, made.webhook.uid)


def select_what_is_gone_while_disabled(world: World) -> None:
    made = world.webhook("source")
    world.automation("listener", made, enabled=False)
    world.management.webhooks.delete(world.may, made.webhook.uid)


def select_what_never_was(world: World) -> None:
    filters = {"webhook_ids": ["wh_nowhere"]}
    trigger = {"provider": "webhook", "event": "received", "filter": filters}
    world.management.automations.create(world.may, "listener", prompt="Look.", triggers=[trigger])


def get_what_is_well(world: World) -> None:
    world.post(world.webhook("source"), b"1")


@pytest.mark.parametrize(
    ("happens", "said", "way_out"),
    [
        (fail_to_authenticate, "source rejected 1 attempt for failed authentication", "&label=rejected_auth"),
        (come_too_often, "source dropped 1 attempt over its rate limit", "/deliveries?webhook="),
        (repeat_a_body, "source detected 1 of its last 1 duplicates by body hash only", "#delivery-id"),
        (send_no_json, "source rejected 1 attempt with invalid JSON", "&label=rejected_invalid_json"),
        (change_the_secret, "source uses an old value of its secret", "#secret"),
        (await_the_provider, "source has no secret yet", "#secret"),
        (post_while_disabled, "source received 1 attempt while it was disabled", "#state"),
        (select_what_is_gone, "listener selects webhook “source”, which is deleted", "/automations/aut_"),
        (select_what_never_was, "listener selects wh_nowhere, which is not a webhook", "/automations/aut_"),
    ],
)
def test_what_needs_attention_is_said_with_a_way_to_act(
    dashboard: Dashboard, manager: Visitor, happens: Callable[[World], None], said: str, way_out: str
):
    happens(dashboard.world)

    answer = manager.get("/f/default")

    assert said in text(manager)
    buttons = [each for each in Elements(answer.body).with_tag("a") if "small" in each.attributes.get("class", "")]
    assert [way_out in each.attributes["href"] for each in buttons] == [True]


@pytest.mark.parametrize("happens", [get_what_is_well, repeat_an_id, select_what_is_gone_while_disabled])
def test_what_is_well_needs_no_attention(dashboard: Dashboard, manager: Visitor, happens: Callable[[World], None]):
    happens(dashboard.world)

    assert "Needs attention" not in text(manager)


def test_what_loses_events_stands_first(dashboard: Dashboard, manager: Visitor):
    repeat_a_body(dashboard.world)
    made = dashboard.world.webhook("zoo")
    dashboard.world.post(made, b"no JSON")

    said = text(manager)

    assert said.index("zoo rejected 1 attempt with invalid JSON") < said.index(
        "source detected 1 of its last 1 duplicates"
    )


def test_a_disk_without_room_is_said_before_everything(sqlite_store: str):
    for dashboard in dashboard_for_test(sqlite_store, lambda world: Dashboard(world, has_room=lambda: False)):
        assert "The disk is nearly full" in text(dashboard.member("mia@example.com", roles={"default": Role.VIEWER}))


def test_forms_that_add_are_refused_on_a_disk_without_room(dashboard: Dashboard, manager: Visitor):
    path = f"/f/default/webhooks/{dashboard.world.webhook('few').webhook.uid}"
    dashboard.world.has_room = False

    renamed = manager.post(f"{path}/rename", {"name": "other"})
    disabled = manager.post(f"{path}/disable")
    (webhook,) = dashboard.management.webhooks.all(dashboard.world.may)
    dashboard.world.has_room = True

    assert renamed.status == 503
    assert "almost full, so nothing was changed" in renamed.body.decode()
    assert (disabled.status, webhook.name, webhook.state) == (303, "few", WebhookState.DISABLED)
    dashboard.failures.clear()


def test_first_steps_lead_to_a_run_that_succeeded(dashboard: Dashboard, manager: Visitor):
    world = dashboard.world
    made = world.webhook(FIRST_START_NAME)
    world.automation(FIRST_START_NAME, made, prompt=FIRST_START_PROMPT, payload={"to": ["first"]})

    def steps() -> str:
        return text(manager).partition("First steps")[2].partition("Webhooks")[0]

    assert "created at the first start: first. done" in steps()
    assert "printed it in the terminal" in steps()
    assert "A factory groups webhooks, automations, deliveries and runs. This factory is named default." in text(
        manager
    )
    sent = world.post(made, b'{"to": "nobody"}')
    assert "No delivery has started one yet" in steps()
    assert f"/f/default/deliveries/{sent.delivery_id}" in manager.get("/f/default").body.decode()

    world.clock.advance(seconds=1)
    sent = world.post(made, b'{"to": "first"}')
    (run,) = world.management.runs.of_delivery(world.may, sent.delivery_id)
    assert "A run is in progress: view the run. queued" in steps()
    assert f"/f/default/runs/{run_id(run.id)}" in manager.get("/f/default").body.decode()
    world.management.runs.cancel(world.may, run_id(run.id))
    assert "The last run did not succeed: view the run. cancelled" in steps()

    with world.database.write() as tx:
        tx.run("UPDATE runs SET state = 'succeeded'")
    assert steps() == ""
    assert "A factory groups" not in text(manager)


@pytest.mark.parametrize(("role", "may_create"), [(Role.MANAGER, True), (Role.VIEWER, False)])
def test_an_empty_factory_says_what_to_do_first(dashboard: Dashboard, role: Role, may_create: bool):
    somebody = dashboard.member("new@example.com", roles={"default": role})

    page = Elements(somebody.get("/f/default").body)

    assert "Start here" in page.text
    assert any("big" in each.attributes.get("class", "") for each in page.with_tag("a")) == may_create


def test_the_list_of_webhooks_is_the_home(manager: Visitor):
    answer = manager.get("/f/default/webhooks")

    assert (answer.status, answer.headers["location"]) == (303, "/f/default")


def hours(*counts: AttemptCounts) -> list[Hour]:
    return [Hour(start=place * HOUR_US, counts=each) for place, each in enumerate(counts)]


def test_a_chart_says_in_words_what_it_draws():
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


def test_an_empty_day_draws_nothing_and_says_so():
    drawn = chart(hours(AttemptCounts(), AttemptCounts()))

    assert (drawn.parts, drawn.summary) == ((), "No deliveries in the last 24 hours.")


def test_parts_of_an_hour_stand_on_each_other_up_to_the_full_height():
    [accepted, duplicate] = chart(hours(AttemptCounts({Label.ACCEPTED: 3, Label.DUPLICATE: 1}))).parts

    assert (accepted.path, duplicate.path) == (f"M120 {HEIGHT // 4}V{HEIGHT}", f"M120 0V{HEIGHT // 4}")


def test_one_among_a_million_is_drawn():
    [_, rejected] = chart(hours(AttemptCounts({Label.ACCEPTED: 1_000_000, Label.REJECTED_AUTH: 1}))).parts

    assert rejected.path == "M120 0V1"


def test_home_looks_right(check_accessibility: Callable[..., None], installation: Installation):
    check_accessibility("home-new", "/f/default")
    made: list[Any] = [
        installation.management.webhooks.create(installation.may, f"service {number}") for number in range(4)
    ]
    installation.management.webhooks.create(
        installation.may, "<b>a name</b> that is long enough to be broken somewhere, \u202e and turned around"
    )
    for number in range(6):
        installation.service.post(made[0], b'{"n": %d}' % (number % 4))
    installation.service.post(made[1], b"{}", token="wrong")
    installation.service.post(made[2], b"no JSON")
    installation.management.secrets.replace(installation.may, made[3].webhook.secret_name)
    installation.management.factories.create(installation.may_administer, "empty")

    check_accessibility("home", "/f/default")
    check_accessibility("home-empty", "/f/empty")


def test_from_home_to_the_first_run(page: Page, installation: Installation):
    page.goto(installation.url("/f/default"))
    beside = page.context.new_page()
    beside.goto(installation.url("/f/default"))
    steps = beside.get_by_role("region", name="First steps")
    expect(steps).not_to_contain_text("Run succeeded")
    expect(steps).to_contain_text("first has no filter, so every delivery starts a run.")
    page.get_by_role("link", name="first", exact=True).first.click()
    page.goto(page.url + "#rotate")
    page.get_by_role("button", name="Rotate secret now").click()
    secret = page.locator("#secret").inner_text()
    first = installation.management.webhooks.get(installation.may, "first")
    answer = installation.service.request(
        "POST", first.ingress_path(), headers={"Authorization": f"Bearer {secret}"}, body=b'{"it": "works"}'
    )
    page.goto(installation.url("/f/default"))

    assert answer.status == 202
    card = page.locator(".webhooks .card").filter(has=page.get_by_role("link", name="first", exact=True))
    expect(card).to_contain_text("Last delivery")
    expect(card.get_by_role("img", name="Deliveries to first by hour")).to_be_visible()
    expect(card).to_contain_text("1 Accepted")

    # The page that was open all the while has followed.
    expect(steps).to_contain_text("Run succeeded: view the run. done")
    steps.get_by_role("link", name="view the run").click()
    expect(beside.get_by_role("heading", name="Run of first")).to_be_visible()
    page.goto(installation.url("/f/default"))
    expect(page.get_by_role("heading", name="Webhooks")).to_be_visible()
    expect(page.get_by_role("region", name="First steps")).to_have_count(0)

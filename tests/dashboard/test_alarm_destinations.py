"""The pages of alarm destinations: add one, send a test, and remove it."""

import re

import pytest
from playwright.sync_api import expect

from hookmill.domain.permission import Role
from tests.dashboard.client import Dashboard, Elements, Visitor
from tests.dashboard.conftest import press
from tests.notices.receivers import http_receiver
from tests.notices.test_outgoing import outgoing
from tests.support.world import World

PATH = "/f/default/alarm-destinations"


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def admin(sqlite_store):
    world = World(sqlite_store, allows_private_addresses=True, send_alarm=outgoing().send)
    dashboard = Dashboard(world)
    yield dashboard.member("admin@example.com", is_admin=True)
    assert dashboard.failures == []
    world.close()


def text_of(admin: Visitor, path: str = PATH) -> str:
    return Elements(admin.get(path).body).text


def test_destination_is_added_tested_and_removed(admin, receiver):
    url = receiver.url("/status/500?token=canary")
    added = admin.post(PATH, [("kind", "webhook"), ("destination_url", url), ("alarm", "runs_waiting")])
    body = added.body.decode()
    (secret,) = re.findall(r"whsec_[A-Za-z0-9+/=]+", body)
    [destination] = admin.dashboard.management.alarm_destinations.all(admin.dashboard.world.may)

    tested = Elements(admin.post(f"{PATH}/{destination.id}/test").body).text
    listed = admin.get(PATH).body.decode()
    removed = admin.post(f"{PATH}/{destination.id}/remove")

    assert added.status == 200
    assert f"was not sent. http://127.0.0.1:{receiver.port} answered with the status 500." in tested
    assert "<div>Runs wait</div>" in listed
    assert secret not in listed
    assert "canary" not in body + listed + tested
    assert removed.headers["location"] == f"{PATH}?flash=alarm-destination-removed"
    assert "No alarm destinations yet" in text_of(admin)


def test_test_that_was_accepted_is_shown(admin, receiver):
    path = "/team/alarm-destinations"
    admin.post(path, [("kind", "slack"), ("destination_url", receiver.url()), ("includes_factories", "yes")])
    may = admin.dashboard.may_administer
    [destination] = admin.dashboard.management.alarm_destinations.all(may)

    tested = Elements(admin.post(f"{path}/{destination.id}/test").body).text

    assert f"http://127.0.0.1:{receiver.port}/… accepted the test." in tested
    assert destination.includes_factories
    assert "of all factories, too" in text_of(admin, path)


def test_pages_of_alarms_and_of_destinations_link_to_each_other(admin):
    viewer = admin.dashboard.member("viewer@example.com", roles={"default": Role.VIEWER})
    links = {
        path: {link.attributes["href"] for link in Elements(admin.get(path).body).with_tag("a")}
        for path in ("/f/default/alarms", PATH, "/team/alarms", "/team/alarm-destinations")
    }

    assert PATH in links["/f/default/alarms"]
    assert "/f/default/alarms" in links[PATH]
    assert "/team/alarm-destinations" in links["/team/alarms"]
    assert "/team/alarms" in links["/team/alarm-destinations"]
    assert PATH not in viewer.get("/f/default/alarms").body.decode()


def test_input_is_kept_after_a_problem_except_for_the_url(admin):
    refused = admin.post(
        PATH, [("kind", "email"), ("to", "no address"), ("destination_url", ""), ("alarm", "runs_failing")]
    )
    with_url = admin.post(PATH, [("kind", "slack"), ("destination_url", "https://user:canary@example.com/")])
    unknown = admin.post(PATH, [("kind", "pigeon")])

    assert (refused.status, with_url.status, unknown.status) == (422, 422, 422)
    body = refused.body.decode()
    assert 'value="no address"' in body
    assert 'value="runs_failing" checked' in body
    assert "is not an e-mail address" in body
    assert "canary" not in with_url.body.decode()
    assert "Choose a kind of destination from the list." in unknown.body.decode()


def test_pages_are_accessible_and_usable(page, installation, check_accessibility):
    page.goto(PATH)
    page.get_by_label("Kind").select_option("slack")
    page.get_by_label("URL").fill("https://127.0.0.1/")
    press(page, "Add destination")
    expect(page.get_by_role("alert")).to_contain_text("127.0.0.1 is not a public address.")
    page.get_by_label("URL").fill("https://hooks.example.com/path-of-the-url")
    page.get_by_label("Runs fail").check()
    press(page, "Add destination")

    expect(page.get_by_role("status")).to_contain_text("Alarms are now sent to https://hooks.example.com/…")
    check_accessibility("alarm destinations", PATH)

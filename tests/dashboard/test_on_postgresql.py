"""The first use of the dashboard on PostgreSQL: from the first admin's link to the run of a filtered automation."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import PASSWORD, Installation, expect_text, press
from tests.support.service import serving


@pytest.fixture(scope="module")
def installation(postgres_server, tmp_path_factory):
    """A service on PostgreSQL without members."""
    url = postgres_server.create_database()
    directory = tmp_path_factory.mktemp("installation") / "data"
    with serving(directory, database_url=url) as service, service.management() as management:
        yield Installation(service, management)
    postgres_server.drop_database(url)


@pytest.mark.proof
def test_first_admin_creates_a_webhook_and_an_automation_with_a_filter(signed_out_page, installation):
    page = signed_out_page
    link = installation.management.sessions.create_first_link()
    assert link is not None

    page.goto(f"/welcome/{link.reveal()}")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("E-mail address").fill("ada@example.com")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Confirm password").fill(PASSWORD)
    press(page, "Create account")
    page.get_by_role("link", name="Create webhook").first.click()
    page.get_by_label("Name", exact=True).fill("builds")
    press(page, "Create")
    expect(page.get_by_role("button", name="Copy").first).to_be_visible()
    bearer = re.search(r"Authorization: Bearer ([\w-]+)", page.content())
    assert bearer is not None
    webhook = installation.management.webhooks.get(installation.may, "builds")

    page.goto("/f/default/deliveries")
    post(installation, webhook.uid, bearer[1], {"status": "failed", "build": 1})
    expect(page.get_by_role("row").filter(has_text="builds")).to_be_visible()
    page.goto(f"/f/default/automations/new?webhook={webhook.uid}")
    page.get_by_label("Name", exact=True).fill("Look into failures")
    page.get_by_label("Prompt").fill("Find out why.")
    press(page, 'status "failed"')
    expect(page.locator("#result")).to_contain_text("Would trigger")
    page.get_by_role("button", name="Create").first.click()
    expect_text(page, "Automation created.")
    post(installation, webhook.uid, bearer[1], {"status": "passed", "build": 2})
    post(installation, webhook.uid, bearer[1], {"status": "failed", "build": 3})

    page.goto("/f/default/runs")
    expect(page.get_by_role("row").filter(has_text="Look into failures")).to_have_count(1)


def post(installation: Installation, uid: str, token: str, body: object) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    answer = installation.service.request("POST", f"/webhooks/w/{uid}", headers=headers, body=json.dumps(body).encode())
    assert answer.status == 202

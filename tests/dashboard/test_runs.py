"""The pages of runs and of the queue: live while runs are in progress, then with the result and the files."""

import socket
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import Installation, expect_text, press
from tests.dashboard.runners import create_automation, installation_with_runners
from tests.support.automations import automation_changed
from tests.support.counts import only_in_proof
from tests.support.waiting import until

RUNS = "/f/default/runs"
PRINTING_SCRIPT = """
import pathlib, time
print("<script>alert(1)</script> begins \\u202e", flush=True)
pathlib.Path('<b>file \\u202e"; name').write_text("<script>alert(1)</script>" * 4000)
open(b"no text \\xff", "w").close()
end_file = pathlib.Path("../../end-file")
while not end_file.exists():
    time.sleep(0.05)
print("and ends", flush=True)
"""
LINKING_SCRIPT = """
import os
os.unlink("output.log")
os.symlink("../../master.key", "output.log")
os.symlink("../../master.key", "also-linked")
os.mkdir("deeper")
os.mkfifo("pipe")
print("output after the link", flush=True)
"""
RUNNERS = {
    "prints": [sys.executable, "-X", "utf8", "-c", PRINTING_SCRIPT],
    "links": [sys.executable, "-c", LINKING_SCRIPT],
}


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """A service with two commands as runners."""
    with installation_with_runners(tmp_path_factory.mktemp("installation") / "data", RUNNERS) as installation:
        yield installation


@pytest.fixture(scope="module")
def webhooks(installation):
    """A webhook for each runner, by the runner's name. A delivery to it starts a run with this runner."""
    webhooks = {}
    for runner in ("package", *RUNNERS):
        webhooks[runner] = installation.webhook(f"for {runner}")
        create_automation(installation, f"by {runner}", webhooks[runner], runner=runner)
    return webhooks


def start_run(installation: Installation, webhook: WebhookWithSecret) -> str:
    """Returns the run's id."""
    answer = installation.service.post(webhook, b'{"at": %d}' % time.time_ns())
    [run] = installation.management.runs.of_delivery(installation.may, answer.delivery_id)
    return run_id(run.id)


def wait_until(installation: Installation, run: str, *states: RunState) -> None:
    until(
        lambda: installation.management.runs.get(installation.may, run).state in states, f"the run is one of {states}"
    )


@pytest.fixture
def end_file(installation):
    """A path. Runs of the runner `prints` end when this file exists."""
    path = installation.service.data_dir / "end-file"
    yield path
    path.unlink(missing_ok=True)


def test_run_page_shows_the_values_of_fields_as_text(page, installation, webhooks):
    automation_id = create_automation(installation, "with fields", webhooks["package"])
    fields = {"at": "/at", "title": "/title", "none": "/none", "all": "/all"}
    body = b'{"at": 12345678901234567890, "title": "<b>Fix</b> \\u202e", "all": [1]}'
    automation_changed(installation.management, installation.may, automation_id, options={"fields": fields})
    run = installation.management.automations.start_run(installation.may, automation_id, body)

    page.goto(f"{RUNS}/{run_id(run.id)}")

    rows = page.locator("dl[aria-labelledby=fields] > div").all()
    assert [row.locator("dt, dd").all_inner_texts() for row in rows] == [
        ["at", "12345678901234567890"],
        ["title", '"<b>Fix</b> \\u202e"'],
        ["none", "missing"],
        ["all", "left out: the payload has an array there"],
    ]
    installation.management.automations.delete(installation.may, automation_id)


def test_run_page_follows_the_output_and_the_state_of_a_run(page, installation, webhooks, end_file):
    run = start_run(installation, webhooks["prints"])
    page.goto(f"{RUNS}/{run}")
    progress = page.locator("#progress")
    expect(progress).to_contain_text("running")
    # The output may contain hostile text.
    expect(progress.locator("pre")).to_contain_text("<script>alert(1)</script> begins \\u202e")
    expect(page.get_by_role("button", name="Cancel run")).to_be_visible()

    end_file.touch()

    expect(progress).to_contain_text("and ends")
    expect(progress).to_contain_text("succeeded")
    expect(progress.locator("dt", has_text="Exit status").locator("+ dd")).to_have_text("0")
    expect(progress).to_contain_text(f"{socket.gethostname()}, process ")
    assert progress.get_attribute("hx-trigger") is None


def test_page_of_a_finished_run_shows_its_files(page, installation, webhooks, end_file):
    end_file.touch()
    run = start_run(installation, webhooks["prints"])
    wait_until(installation, run, RunState.SUCCEEDED)

    page.goto(f"{RUNS}/{run}")

    files = [cell.inner_text() for cell in page.locator("table th[scope=row]").all()]
    assert files == [
        "prompt.md", "envelope.json", "event-payload.json", '<b>file \\u202e"; name', "envelope.txt",
        "no text \\udcff", "output.log",
    ]  # fmt: skip
    page.get_by_text("Full prompt").click()
    expect(page.get_by_label("Prompt")).to_contain_text("Look at it.")
    assert download(page, "event-payload.json").read_bytes().startswith(b'{"at": ')
    assert download(page, "<b>file").read_bytes() == b"<script>alert(1)</script>" * 4000
    expect(page.get_by_role("link", name="no text")).to_have_count(0)


def download(page: Page, name: str) -> Path:
    with page.expect_download() as downloading:
        page.get_by_role("link", name=name).click()
    assert "\u202e" not in downloading.value.suggested_filename
    return downloading.value.path()


def test_symbolic_link_in_a_package_is_not_followed(page, installation, webhooks):
    run = start_run(installation, webhooks["links"])
    wait_until(installation, run, RunState.SUCCEEDED, RunState.FAILED)
    key = (installation.service.data_dir / "master.key").read_text().strip()

    page.goto(f"{RUNS}/{run}")

    assert key not in page.content()
    expect(page.locator("main")).not_to_contain_text("also-linked")
    for name in ("also-linked", "output.log", "..", ".", "deeper", "pipe", "..%2F..%2Fmaster.key", "%00", "%FF"):
        answer = page.request.get(installation.url(f"{RUNS}/{run}/files/{name}"))
        assert answer.status == 404, name
        assert key not in answer.text()


def test_run_is_cancelled(page, installation, webhooks):
    run = start_run(installation, webhooks["prints"])
    wait_until(installation, run, RunState.RUNNING)
    page.goto(f"{RUNS}/{run}")

    press(page, "Cancel run")

    expect(page.get_by_role("status")).to_contain_text("Cancellation requested")
    expect(page.locator("#progress")).to_contain_text("cancelled")
    # It would be that of the signal.
    expect(page.get_by_text("Exit status")).to_have_count(0)


def test_cancellation_of_a_run_that_has_ended_is_rejected(
    new_profile, signed_in_state, installation, webhooks, end_file
):
    run = start_run(installation, webhooks["prints"])
    wait_until(installation, run, RunState.RUNNING)
    page = new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()
    page.goto(f"{RUNS}/{run}")
    end_file.touch()
    wait_until(installation, run, RunState.SUCCEEDED)

    press(page, "Cancel run")

    expect(page.get_by_role("alert")).to_contain_text("has already ended")
    expect(page.get_by_role("button", name="Cancel run")).to_have_count(0)


def test_runs_are_filtered_without_scripts(new_profile, signed_in_state, installation, webhooks):
    run = start_run(installation, webhooks["package"])
    wait_until(installation, run, RunState.SUCCEEDED)
    page = new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()
    page.goto(RUNS)

    page.get_by_label("Webhook").select_option(label="for package")
    page.get_by_label("Automation").select_option(label="by package")
    page.get_by_label("State").select_option(label="succeeded")
    press(page, "Filter")

    expect(page.locator(f"a[href$='{run}']")).to_be_visible()
    assert {cell.inner_text() for cell in page.locator("td[data-name=Automation]").all()} == {"by package"}
    page.get_by_label("Automation").select_option(label="by prints")
    press(page, "Filter")
    expect_text(page, "No runs match.")
    page.get_by_label("Automation").select_option(label="All")
    page.get_by_label("State").select_option(label="interrupted")
    press(page, "Filter")
    expect_text(page, "No runs match.")


@pytest.mark.parametrize("page_name", ["runs", only_in_proof("automation")])
def test_list_of_runs_updates_itself_and_keeps_the_focus(page, installation, webhooks, end_file, page_name):
    automation = installation.management.automations.get(installation.may, "by prints")
    path = RUNS if page_name == "runs" else f"/f/default/automations/{automation.id}"
    first = start_run(installation, webhooks["prints"])
    wait_until(installation, first, RunState.RUNNING)
    page.goto(path)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    row = page.get_by_role("row").filter(has=page.locator(f"#{first}"))
    expect(row).to_contain_text("running")
    page.locator(f"#{first}").focus()

    second = start_run(installation, webhooks["prints"])
    expect(page.locator(f"#{second}")).to_be_visible()
    expect(page.locator(f"#{first}")).to_be_focused()
    end_file.touch()

    expect(row).to_contain_text("succeeded")
    expect(page.locator(f"#{first}")).to_be_focused()
    wait_until(installation, second, RunState.SUCCEEDED)


def test_hidden_page_does_not_poll_the_list_of_runs(page, installation):
    polls: list[str] = []
    page.on("request", lambda request: polls.append(request.url) if "/runs/rows" in request.url else None)
    page.clock.install()
    page.goto(RUNS)

    set_hidden(page, True)
    polls.clear()
    page.clock.run_for(60_000)
    assert polls == []
    with page.expect_response(lambda response: "/runs/rows" in response.url) as answer:
        set_hidden(page, False)

    assert answer.value.status == 204


def set_hidden(page: Page, hidden: bool) -> None:
    """Tell the page that it is hidden, as when another tab comes to the front, or visible."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_page_of_the_queue_updates_itself(page, installation, webhooks, end_file):
    page.goto(f"{RUNS}/queue")
    expect_text(page, "No runs are running.")

    run = start_run(installation, webhooks["prints"])

    expect(page.locator(f"#{run}")).to_be_visible()
    page.locator(f"#{run}").focus()
    end_file.touch()
    expect(page.locator(f"#{run}")).to_have_count(0)

"""Runs, while they run and afterwards."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import Installation
from tests.dashboard.runners import create_automation, installation_with_runners
from tests.support.waiting import until

RUNS = "/f/default/runs"
TALKS = """
import pathlib, time
print("<script>alert(1)</script> begins \\u202e", flush=True)
pathlib.Path('<b>left \\u202e"; behind').write_text("<script>alert(1)</script>" * 4000)
open(b"no text \\xff", "w").close()
go_on = pathlib.Path("../../go-on")
while not go_on.exists():
    time.sleep(0.05)
print("and ends", flush=True)
"""
LINKS = """
import os
os.unlink("output.log")
os.symlink("../../master.key", "output.log")
os.symlink("../../master.key", "also-linked")
os.mkdir("deeper")
os.mkfifo("pipe")
print("told through a link", flush=True)
"""
RUNNERS = {"talks": [sys.executable, "-X", "utf8", "-c", TALKS], "links": [sys.executable, "-c", LINKS]}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A service whose operator has given it commands to run."""
    with installation_with_runners(tmp_path_factory.mktemp("installation") / "data", RUNNERS) as installation:
        yield installation


@pytest.fixture(scope="module")
def webhooks(installation: Installation) -> dict[str, WebhookWithSecret]:
    """A webhook for each runner, and an automation that runs by it."""
    made = {}
    for runner in ("package", *RUNNERS):
        made[runner] = installation.management.webhooks.create(installation.may, f"for {runner}")
        create_automation(installation, f"by {runner}", made[runner], runner=runner)
    return made


def started(installation: Installation, webhook: WebhookWithSecret) -> str:
    answer = installation.service.post(webhook, b'{"at": %d}' % time.time_ns())
    [run] = installation.management.runs.of_delivery(installation.may, answer.delivery_id)
    return run_id(run.id)


def wait_until(installation: Installation, run: str, *states: RunState) -> None:
    until(
        lambda: installation.management.runs.get(installation.may, run).state in states, f"the run is one of {states}"
    )


@pytest.fixture
def go_on(installation: Installation) -> Iterator[Path]:
    """The file that a talking run waits for."""
    path = installation.service.data_dir / "go-on"
    yield path
    path.unlink(missing_ok=True)


def test_a_run_is_seen_from_its_first_line_to_its_end(
    page: Page, installation: Installation, webhooks: dict[str, WebhookWithSecret], go_on: Path
):
    run = started(installation, webhooks["talks"])
    page.goto(installation.url(f"{RUNS}/{run}"))
    progress = page.locator("#progress")
    expect(progress).to_contain_text("running")
    # What a run prints may be anybody's words.
    expect(progress.locator("pre")).to_contain_text("<script>alert(1)</script> begins \\u202e")
    expect(page.get_by_role("button", name="Cancel run")).to_be_visible()

    go_on.touch()

    expect(progress).to_contain_text("and ends")
    expect(progress).to_contain_text("succeeded")
    assert progress.get_attribute("hx-trigger") is None


def test_a_finished_run_shows_its_package(
    page: Page, installation: Installation, webhooks: dict[str, WebhookWithSecret], go_on: Path
):
    go_on.touch()
    run = started(installation, webhooks["talks"])
    wait_until(installation, run, RunState.SUCCEEDED)

    page.goto(installation.url(f"{RUNS}/{run}"))

    files = [cell.inner_text() for cell in page.locator("table th[scope=row]").all()]
    assert files == [
        '<b>left \\u202e"; behind', "envelope.json", "envelope.txt", "event-payload.json", "no text \\udcff",
        "output.log", "prompt.md",
    ]  # fmt: skip
    page.get_by_text("Full prompt").click()
    expect(page.get_by_label("Prompt")).to_contain_text("Look at it.")
    assert downloaded(page, "event-payload.json").read_bytes().startswith(b'{"at": ')
    assert downloaded(page, "<b>left").read_bytes() == b"<script>alert(1)</script>" * 4000
    expect(page.get_by_role("link", name="no text")).to_have_count(0)


def downloaded(page: Page, name: str) -> Path:
    with page.expect_download() as downloading:
        page.get_by_role("link", name=name).click()
    assert "\u202e" not in downloading.value.suggested_filename
    return downloading.value.path()


def test_a_link_in_a_package_leads_nowhere(
    page: Page, installation: Installation, webhooks: dict[str, WebhookWithSecret]
):
    run = started(installation, webhooks["links"])
    wait_until(installation, run, RunState.SUCCEEDED, RunState.FAILED)
    key = (installation.service.data_dir / "master.key").read_text().strip()

    page.goto(installation.url(f"{RUNS}/{run}"))

    assert key not in page.content()
    expect(page.locator("main")).not_to_contain_text("also-linked")
    for name in ("also-linked", "output.log", "..", ".", "deeper", "pipe", "..%2F..%2Fmaster.key", "%00", "%FF"):
        answer = page.request.get(installation.url(f"{RUNS}/{run}/files/{name}"))
        assert answer.status == 404, name
        assert key not in answer.text()


def test_a_run_is_cancelled(page: Page, installation: Installation, webhooks: dict[str, WebhookWithSecret]):
    run = started(installation, webhooks["talks"])
    wait_until(installation, run, RunState.RUNNING)
    page.goto(installation.url(f"{RUNS}/{run}"))

    page.get_by_role("button", name="Cancel run").click()

    expect(page.get_by_role("status")).to_contain_text("Cancellation requested")
    expect(page.locator("#progress")).to_contain_text("cancelled")


def test_a_run_that_is_over_is_not_cancelled_from_a_page_of_before(
    new_profile: Callable[..., BrowserContext],
    signed_in_state: Any,
    installation: Installation,
    webhooks: dict[str, WebhookWithSecret],
    go_on: Path,
):
    run = started(installation, webhooks["talks"])
    wait_until(installation, run, RunState.RUNNING)
    page = new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()
    page.goto(installation.url(f"{RUNS}/{run}"))
    go_on.touch()
    wait_until(installation, run, RunState.SUCCEEDED)

    page.get_by_role("button", name="Cancel run").click()

    expect(page.get_by_role("alert")).to_contain_text("already succeeded")
    expect(page.get_by_role("button", name="Cancel run")).to_have_count(0)


def test_runs_are_narrowed_without_scripts(
    new_profile: Callable[..., BrowserContext],
    signed_in_state: Any,
    installation: Installation,
    webhooks: dict[str, WebhookWithSecret],
):
    run = started(installation, webhooks["package"])
    wait_until(installation, run, RunState.SUCCEEDED)
    page = new_profile(java_script_enabled=False, storage_state=signed_in_state).new_page()
    page.goto(installation.url(RUNS))

    page.get_by_label("Webhook").select_option(label="for package")
    page.get_by_label("Automation").select_option(label="by package")
    page.get_by_label("State").select_option(label="succeeded")
    page.get_by_role("button", name="Filter").click()

    expect(page.locator(f"a[href$='{run}']")).to_be_visible()
    assert {cell.inner_text() for cell in page.locator("td[data-name=Automation]").all()} == {"by package"}
    page.get_by_label("Automation").select_option(label="by talks")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No runs match.")).to_be_visible()
    page.get_by_label("Automation").select_option(label="All")
    page.get_by_label("State").select_option(label="interrupted")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No runs match.")).to_be_visible()


@pytest.mark.parametrize("place", ["runs", "automation"])
def test_a_list_of_runs_follows_what_happens(
    page: Page, installation: Installation, webhooks: dict[str, WebhookWithSecret], go_on: Path, place: str
):
    talks = installation.management.automations.get(installation.may, "by talks")
    path = RUNS if place == "runs" else f"/f/default/automations/{talks.id}"
    first = started(installation, webhooks["talks"])
    wait_until(installation, first, RunState.RUNNING)
    page.goto(installation.url(path))
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    row = page.get_by_role("row").filter(has=page.locator(f"#{first}"))
    expect(row).to_contain_text("running")
    page.locator(f"#{first}").focus()

    second = started(installation, webhooks["talks"])
    expect(page.locator(f"#{second}")).to_be_visible()
    expect(page.locator(f"#{first}")).to_be_focused()
    go_on.touch()

    expect(row).to_contain_text("succeeded")
    expect(page.locator(f"#{first}")).to_be_focused()
    wait_until(installation, second, RunState.SUCCEEDED)


def test_a_list_of_runs_that_nobody_looks_at_is_not_asked_for(page: Page, installation: Installation):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/runs/rows" in request.url else None)
    page.clock.install()
    page.goto(installation.url(RUNS))

    hide(page, True)
    asked.clear()
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_response(lambda response: "/runs/rows" in response.url) as answer:
        hide(page, False)

    assert answer.value.status == 204


def hide(page: Page, hidden: bool) -> None:
    """As if another tab came to the front."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_the_pages_of_runs_look_right(
    check_accessibility: Any, installation: Installation, webhooks: dict[str, WebhookWithSecret], go_on: Path
):
    go_on.touch()
    run = started(installation, webhooks["talks"])
    wait_until(installation, run, RunState.SUCCEEDED)

    check_accessibility("runs", RUNS)
    check_accessibility("run", f"{RUNS}/{run}")
    left = started(installation, webhooks["package"])
    wait_until(installation, left, RunState.SUCCEEDED)
    check_accessibility("run-left", f"{RUNS}/{left}")


def test_the_page_of_the_queue_looks_right(
    check_accessibility: Any, installation: Installation, webhooks: dict[str, WebhookWithSecret], go_on: Path
):
    runs = [started(installation, webhooks["talks"]) for _ in range(6)]
    wait_until(installation, runs[3], RunState.RUNNING)

    check_accessibility("queue", f"{RUNS}/queue")
    check_accessibility("queue-cancel", f"{RUNS}/queue/cancel")
    go_on.touch()
    for run in runs:
        wait_until(installation, run, RunState.SUCCEEDED)
    check_accessibility("queue-empty", f"{RUNS}/queue")


def test_the_page_of_the_queue_follows_what_happens(
    page: Page, installation: Installation, webhooks: dict[str, WebhookWithSecret], go_on: Path
):
    page.goto(installation.url(f"{RUNS}/queue"))
    expect(page.get_by_text("No runs are running.")).to_be_visible()

    run = started(installation, webhooks["talks"])

    expect(page.locator(f"#{run}")).to_be_visible()
    page.locator(f"#{run}").focus()
    go_on.touch()
    expect(page.locator(f"#{run}")).to_have_count(0)

"""The audit log and the page about definition files."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

import hookmill.management
from hookmill import definitions
from hookmill.domain.permission import Channel, Role
from hookmill.management import DefinitionAct, DefinitionOutcome
from hookmill.web.dashboard.audit import ACTION_PHRASES, PAGE_SIZE
from tests.dashboard.client import Dashboard, Elements, Visitor, dashboard_for_test
from tests.dashboard.conftest import Installation
from tests.definitions.conftest import write

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


@pytest.fixture
def manager(dashboard: Dashboard) -> Visitor:
    return dashboard.member("manager@example.com", roles={"default": Role.MANAGER})


def rows_of(body: bytes) -> list[str]:
    """A row's words, newest first."""
    rows = body.decode().partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")
    return [re.sub(r"\s+", " ", Elements(row.encode()).text).strip() for row in rows if row.strip()]


# The audit log


def acts_in_the_code() -> set[str]:
    """Every act that an operation writes down: what it was, to which kind of thing."""
    found = set()
    for path in Path(hookmill.management.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "record":
                acts, kind = call.args[0], ast.literal_eval(call.args[1])
                choices = [acts.body, acts.orelse] if isinstance(acts, ast.IfExp) else [acts]
                found |= {f"{kind}.{ast.literal_eval(act)}" for act in choices}
    return found


def test_every_act_has_words():
    # The service itself pauses automations.
    assert acts_in_the_code() | {"automation.pause"} == set(ACTION_PHRASES)


def test_a_line_says_who_did_what_to_which_thing_and_from_where(dashboard: Dashboard, manager: Visitor):
    webhook = dashboard.world.webhook("source").webhook
    signed_in = dashboard.management.sessions.by_session_token(manager.session or "", client="203.0.113.9")
    assert signed_in is not None
    may = dashboard.management.access.permission_to_manage(signed_in.caller, "default")
    dashboard.world.clock.advance(seconds=1)
    dashboard.management.webhooks.rename(may, webhook.uid, "source of all")

    answer = manager.get("/f/default/audit")

    newest = rows_of(answer.body)[0]
    [link] = [each for each in Elements(answer.body).with_tag("a") if "/webhooks/wh_" in each.attributes["href"]][:1]
    assert newest == (
        "2030-03-17 17:46:41 manager@example.com renamed webhook source of all before: source dashboard, 203.0.113.9"
    )
    assert link.attributes["href"] == f"/f/default/webhooks/{webhook.uid}"


def test_a_factorys_log_says_nothing_of_the_team_or_of_others(dashboard: Dashboard, manager: Visitor):
    other = dashboard.world.elsewhere("other")
    dashboard.management.webhooks.create(other, "theirs")
    dashboard.world.webhook("ours")

    rows = " ".join(rows_of(manager.get("/f/default/audit").body))

    assert "created webhook ours" in rows
    assert "theirs" not in rows
    assert "member" not in rows.replace("manager@example.com", "")


def test_the_log_is_paged_without_a_gap_or_a_repeat(dashboard: Dashboard, manager: Visitor):
    for number in range(PAGE_SIZE + 7):
        dashboard.management.secrets.create(dashboard.world.may, f"S{number}")

    seen, path = [], "/f/default/audit"
    while path:
        body = manager.get(path).body
        seen += rows_of(body)
        links = [each.attributes["href"] for each in Elements(body).with_tag("a")]
        path = next((link for link in links if "before=aud_" in link), "")

    names = [found[1] for row in seen if (found := re.search(r"created secret (\w+)", row))]
    assert names == [f"S{number}" for number in reversed(range(PAGE_SIZE + 7))]


@pytest.mark.parametrize(
    "before", ["x", "aud_", "aud_" + "g" * 32, "aud_" + "0" * 31, "\x00", "aud_" + "0" * 32 + "\n"]
)
def test_an_address_that_names_no_entry_is_refused(manager: Visitor, before: str):
    assert manager.get(f"/f/default/audit?before={quote(before)}").status == 422


def test_before_the_first_entry_there_is_nothing(manager: Visitor):
    answer = manager.get("/f/default/audit?before=aud_" + "0" * 32)

    assert "No older changes." in Elements(answer.body).text


def test_the_log_looks_right_whatever_things_are_called(
    check_accessibility: Callable[..., None], page: Page, installation: Installation
):
    installation.management.webhooks.create(installation.may, HOSTILE)
    installation.management.webhooks.rename(installation.may, HOSTILE, "harmless")
    admin = installation.may_administer
    installation.management.keys.create(admin, HOSTILE, Role.ADMIN, expires_at=4_000_000_000_000_000)

    page.goto(installation.url("/team/audit"))
    expect(page.get_by_role("row", name="created API key").first).to_contain_text("expires: 2096-10-02 07:06:40")

    check_accessibility("audit", "/f/default/audit")
    check_accessibility("team-audit", "/team/audit")


# Definition files


def applied(dashboard: Dashboard, folder: Path, *, only_plan: bool = False) -> None:
    may = dashboard.management.access.operator("default", channel=Channel.FILES)
    wanted = definitions.definitions_for(dashboard.management, may, folder)
    if only_plan:
        definitions.plan(dashboard.management, may, wanted)
    else:
        definitions.apply(dashboard.management, may, wanted)


def words_of(visitor: Visitor) -> str:
    body = visitor.get("/f/default/definitions").body
    return re.sub(r"\s+", " ", Elements(body).text)


def test_a_factory_changed_by_hand_says_how_to_begin_with_files(manager: Visitor):
    words = words_of(manager)

    assert "in the dashboard, on the command line" in words
    assert "hookmill export DIR --factory default" in words
    assert "No plan or apply yet." in words


def test_a_plan_is_shown_with_its_steps_and_has_changed_nothing(dashboard: Dashboard, manager: Visitor, tmp_path: Path):
    dashboard.management.secrets.create(dashboard.world.may, "TOKEN")
    applied(dashboard, write(tmp_path, {"webhooks/source.yaml": "secretName: TOKEN\n"}), only_plan=True)

    words = words_of(manager)

    assert "in the dashboard, on the command line" in words
    assert "Last plan" in words
    assert "1 to create, 0 to change, 0 to remove, 0 unchanged" in words
    assert "+ webhook source: token, secret TOKEN" in words
    assert "Last apply" not in words


def test_an_apply_is_shown_and_what_is_read_only_from_then_on(dashboard: Dashboard, manager: Visitor, tmp_path: Path):
    dashboard.management.secrets.create(dashboard.world.may, "TOKEN")
    applied(dashboard, write(tmp_path, {"webhooks/source.yaml": "secretName: TOKEN\n"}))

    words = words_of(manager)

    assert "Definition files define factory" in words
    assert "read-only" in words
    assert "Last apply" in words
    assert "+ webhook source: token, secret TOKEN" in words
    assert "was rejected" not in words


def test_managers_see_the_problems_until_they_are_fixed(dashboard: Dashboard, manager: Visitor, tmp_path: Path):
    viewer = dashboard.member("viewer@example.com", roles={"default": Role.VIEWER})
    folder = write(tmp_path, {"webhooks/source.yaml": "secretName: MISSING\nenbled: true\n"})
    with pytest.raises(definitions.UnusableDefinitions):
        applied(dashboard, folder)

    to_manager, to_viewer = words_of(manager), words_of(viewer)
    dashboard.world.clock.advance(seconds=1)
    dashboard.management.secrets.create(dashboard.world.may, "MISSING")
    applied(dashboard, write(tmp_path, {"webhooks/source.yaml": "secretName: MISSING\n"}))

    assert "The last apply was rejected" in to_manager
    assert "webhooks/source.yaml:2:1: " in to_manager
    assert "The last apply was rejected" in to_viewer
    assert "source.yaml" not in to_viewer
    assert "was rejected" not in words_of(manager)


def test_an_apply_without_consent_is_shown(dashboard: Dashboard, manager: Visitor, tmp_path: Path):
    dashboard.world.webhook("by hand")
    with pytest.raises(definitions.ConsentNeeded):
        applied(dashboard, write(tmp_path, {}))

    words = words_of(manager)

    assert "The last apply was rejected" in words
    assert "by hand" in words
    assert "in the dashboard, on the command line" in words


def test_a_long_plan_is_cut_and_says_so(dashboard: Dashboard, manager: Visitor):
    lines = (f"+ automation number {number} {'x' * 1_000}" for number in range(1_000))
    dashboard.management.definition_runs.store(
        dashboard.world.may, DefinitionAct.PLAN, DefinitionOutcome.DONE, "1,000 to create.", lines
    )

    body = manager.get("/f/default/definitions").body

    assert b"number 199 " in body
    assert b"number 200 " not in body
    assert "… and more" in body.decode()
    assert len(body) < 80_000


def test_the_page_about_files_looks_right(
    check_accessibility: Callable[..., None], installation: Installation, tmp_path: Path
):
    may = installation.management.access.operator("default", channel=Channel.FILES)
    admin = installation.may_administer
    installation.management.factories.create(admin, "by files")
    files = installation.management.access.operator("by files", channel=Channel.FILES)
    installation.management.secrets.create(installation.may, "TOKEN")
    folder = write(tmp_path, {"webhooks/source.yaml": "secretName: TOKEN\n"})
    definitions.apply(
        installation.management, files, definitions.definitions_for(installation.management, files, folder)
    )
    write(tmp_path, {"webhooks/source.yaml": "secretName: OTHER\nenbled: true\n", "webhooks/more.yaml": HOSTILE})
    for factory in (may, files):
        with pytest.raises(definitions.UnusableDefinitions):
            wanted = definitions.definitions_for(installation.management, factory, folder)
            definitions.plan(installation.management, factory, wanted)

    check_accessibility("definitions-by-hand", "/f/default/definitions")
    check_accessibility("definitions-by-files", "/f/by%20files/definitions")

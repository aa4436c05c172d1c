"""The audit log, and the page about definition files."""

import ast
import re
from pathlib import Path
from urllib.parse import quote

import pytest

import hookmill.management
from hookmill import definitions
from hookmill.domain.permission import Channel
from hookmill.management import DefinitionAct, DefinitionOutcome
from hookmill.web.dashboard.audit import ACTION_PHRASES, PAGE_SIZE
from tests.dashboard.client import Dashboard, Elements, Visitor, text_of
from tests.definitions.conftest import write

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def row_texts(body: bytes) -> list[str]:
    """The text of each row, newest first."""
    rows = body.decode().partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")
    return [text_of(row.encode()) for row in rows if row.strip()]


# The audit log


def recorded_actions() -> set[str]:
    """The actions that the code of the operations records, such as `webhook.create`."""
    actions = set()
    for path in Path(hookmill.management.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "record":
                verb, kind = call.args[0], ast.literal_eval(call.args[1])
                verbs = [verb.body, verb.orelse] if isinstance(verb, ast.IfExp) else [verb]
                actions |= {f"{kind}.{ast.literal_eval(each)}" for each in verbs}
    return actions


def test_every_recorded_action_has_a_phrase():
    # No operation pauses automations or restores a backup: the worker and a command do.
    assert recorded_actions() | {"automation.pause", "installation.restore"} == set(ACTION_PHRASES)


def test_audit_row_shows_actor_action_object_and_address(dashboard, manager):
    webhook = dashboard.world.webhook("source").webhook
    signed_in = dashboard.management.sessions.by_session_token(manager.session or "", client="203.0.113.9")
    assert signed_in is not None
    may = dashboard.management.access.permission_to_manage(signed_in.caller, "default")
    dashboard.world.clock.advance(seconds=1)
    dashboard.management.webhooks.change(may, webhook.uid, {"name": "source of all"})

    answer = manager.get("/f/default/audit")

    newest = row_texts(answer.body)[0]
    paths = [link.attributes["href"] for link in Elements(answer.body).with_tag("a")]
    assert newest == (
        "2030-03-17 17:46:41 manager@example.com changed webhook source of all "
        "name: source of all (before: source) dashboard, 203.0.113.9"
    )
    assert next(path for path in paths if "/webhooks/wh_" in path) == f"/f/default/webhooks/{webhook.uid}"


def test_rows_show_the_networks_before_and_after(dashboard, manager):
    dashboard.world.webhook("source", allowed_networks=["192.0.2.0/24", "::1"])
    for networks in (["10.0.0.0/8"], []):
        dashboard.world.clock.advance(seconds=1)
        dashboard.management.webhooks.change(dashboard.world.may, "source", {"allowed_networks": networks})

    newest, changed, created = row_texts(manager.get("/f/default/audit").body)[:3]

    assert "changed webhook source allowed networks: every network (before: 10.0.0.0/8)" in newest
    assert "changed webhook source allowed networks: 10.0.0.0/8 (before: 192.0.2.0/24, ::1)" in changed
    assert "allowed networks: 192.0.2.0/24, ::1" in created


def test_audit_pages_contain_each_entry_once(dashboard, manager):
    for number in range(PAGE_SIZE + 7):
        dashboard.management.secrets.create(dashboard.world.may, f"S{number}")

    rows, path = [], "/f/default/audit"
    while path:
        body = manager.get(path).body
        rows += row_texts(body)
        links = [link.attributes["href"] for link in Elements(body).with_tag("a")]
        path = next((link for link in links if "before=aud_" in link), "")

    names = [match[1] for row in rows if (match := re.search(r"created secret (\w+)", row))]
    assert names == [f"S{number}" for number in reversed(range(PAGE_SIZE + 7))]


@pytest.mark.parametrize(
    "before", ["x", "aud_", "aud_" + "g" * 32, "aud_" + "0" * 31, "\x00", "aud_" + "0" * 32 + "\n"]
)
def test_invalid_audit_position_is_rejected(manager, before):
    assert manager.get(f"/f/default/audit?before={quote(before)}").status == 422


def test_audit_page_before_the_first_entry_is_empty(manager):
    answer = manager.get("/f/default/audit?before=aud_" + "0" * 32)

    assert "No older changes." in Elements(answer.body).text


# Definition files


def apply_files(dashboard: Dashboard, folder: Path, *, only_plan: bool = False) -> None:
    may = dashboard.management.access.operator("default", channel=Channel.FILES)
    desired = definitions.definitions_for(dashboard.management, may, definitions.read_folder(folder))
    if only_plan:
        definitions.plan(dashboard.management, may, desired)
    else:
        definitions.apply(dashboard.management, may, desired)


def definitions_page(visitor: Visitor) -> str:
    return text_of(visitor.get("/f/default/definitions").body)


def test_definitions_page_explains_how_to_start_with_files(manager):
    text = definitions_page(manager)

    assert "in the dashboard, on the command line" in text
    assert "hookmill export DIR --factory default" in text
    assert "No plan or apply yet." in text


def test_definitions_page_shows_a_plan_that_changed_nothing(dashboard, manager, tmp_path):
    dashboard.management.secrets.create(dashboard.world.may, "TOKEN")
    apply_files(dashboard, write(tmp_path, {"webhooks/source.yaml": "secretName: TOKEN\n"}), only_plan=True)

    text = definitions_page(manager)

    assert "in the dashboard, on the command line" in text
    assert "Last plan" in text
    assert "1 to create, 0 to change, 0 to remove, 0 unchanged" in text
    assert "+ webhook source: authMode token, secretName TOKEN" in text
    assert "Last apply" not in text


def test_definitions_page_shows_an_apply_and_that_files_define_it(dashboard, manager, tmp_path):
    dashboard.management.secrets.create(dashboard.world.may, "TOKEN")
    apply_files(dashboard, write(tmp_path, {"webhooks/source.yaml": "secretName: TOKEN\n"}))

    text = definitions_page(manager)

    assert "Definition files define factory" in text
    assert "read-only" in text
    assert "Last apply" in text
    assert "+ webhook source: authMode token, secretName TOKEN" in text
    assert "was rejected" not in text


def test_only_managers_see_the_problems_of_files_until_they_are_fixed(dashboard, manager, tmp_path, viewer):
    folder = write(tmp_path, {"webhooks/source.yaml": "secretName: MISSING\nenbled: true\n"})
    with pytest.raises(definitions.UnusableDefinitions):
        apply_files(dashboard, folder)

    managers_page, viewers_page = definitions_page(manager), definitions_page(viewer)
    dashboard.world.clock.advance(seconds=1)
    dashboard.management.secrets.create(dashboard.world.may, "MISSING")
    apply_files(dashboard, write(tmp_path, {"webhooks/source.yaml": "secretName: MISSING\n"}))

    assert "The last apply was rejected" in managers_page
    assert "webhooks/source.yaml:2:1: " in managers_page
    assert "The last apply was rejected" in viewers_page
    assert "source.yaml" not in viewers_page
    assert "was rejected" not in definitions_page(manager)


def test_apply_without_consent_is_shown_as_rejected(dashboard, manager, tmp_path):
    dashboard.world.webhook("by hand")
    with pytest.raises(definitions.ConsentNeeded):
        apply_files(dashboard, write(tmp_path, {}))

    text = definitions_page(manager)

    assert "The last apply was rejected" in text
    assert "by hand" in text
    assert "in the dashboard, on the command line" in text


def test_long_plan_is_truncated_with_a_note(dashboard, manager):
    lines = (f"+ automation number {number} {'x' * 1_000}" for number in range(1_000))
    dashboard.management.definition_runs.store(
        dashboard.world.may, DefinitionAct.PLAN, DefinitionOutcome.DONE, "1,000 to create.", lines
    )

    body = manager.get("/f/default/definitions").body

    assert b"number 199 " in body
    assert b"number 200 " not in body
    assert "… and more" in body.decode()
    assert len(body) < 80_000


@pytest.mark.proof
def test_definitions_page_is_accessible(check_accessibility, installation, tmp_path):
    by_hand = installation.management.access.operator("default", channel=Channel.FILES)
    installation.management.factories.create(installation.may_administer, "by files")
    by_files = installation.management.access.operator("by files", channel=Channel.FILES)
    installation.management.secrets.create(installation.may, "TOKEN")
    folder = write(tmp_path, {"webhooks/source.yaml": "secretName: TOKEN\n"})
    definitions.apply(
        installation.management,
        by_files,
        definitions.definitions_for(installation.management, by_files, definitions.read_folder(folder)),
    )
    write(tmp_path, {"webhooks/source.yaml": "secretName: OTHER\nenbled: true\n", "webhooks/more.yaml": HOSTILE})
    for may in (by_hand, by_files):
        with pytest.raises(definitions.UnusableDefinitions):
            desired = definitions.definitions_for(installation.management, may, definitions.read_folder(folder))
            definitions.plan(installation.management, may, desired)

    check_accessibility("definitions-by-hand", "/f/default/definitions")
    check_accessibility("definitions-by-files", "/f/by%20files/definitions")

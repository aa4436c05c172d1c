"""A factory as definition files: applied again, they change nothing."""

from pathlib import Path
from typing import Any

import pytest

from hookmill import definitions
from hookmill.domain.errors import Conflict
from hookmill.domain.permission import Channel, MayManage
from hookmill.domain.webhook import AuthMode, WebhookState
from tests.support.world import World

NAMES = [
    "github",
    "GitHub",
    "GitHub!",
    "GitHub main: pushes",
    "Ünïcødé 😀",
    "  x",
    "no",
    "a: b # c",
    "../../etc",
    "x" * 100,
]


def permission(world: World) -> MayManage:
    return world.management.access.operator("default", channel=Channel.FILES)


def export(world: World) -> dict[str, str]:
    return definitions.export(world.management, permission(world))


def applied_again(world: World, folder: Path) -> definitions.Plan:
    """Export into the folder, and apply what was written."""
    definitions.write(folder, export(world))
    may = permission(world)
    wanted = definitions.definitions_for(world.management, may, folder)
    return definitions.apply(world.management, may, wanted).plan


def test_webhooks_of_any_name_and_kind_come_back_unchanged(world: World, tmp_path: Path):
    for name in NAMES:
        world.webhook(name)
    world.webhook("form", auth_mode=AuthMode.URL_TOKEN, enabled=False, delivery_id_header="X-Id", event_header="X-Kind")
    world.webhook("repo", auth_mode=AuthMode.SIGNATURE, signature_scheme="github", secret="It's a Secret")
    world.webhook(
        "own",
        auth_mode=AuthMode.SIGNATURE,
        signature_scheme="hmac",
        signature_options={"header": "X-Sig", "content": 'v1:"{ts}"\n{body}', "timestamp_header": "X-T"},
        secret="between us",
        event_header="X-T-Kind",
    )
    world.webhook("awaiting", auth_mode=AuthMode.SIGNATURE, signature_scheme="stripe")
    before = list(world.management.webhooks.all(world.may))

    plan = applied_again(world, tmp_path)

    assert plan.steps == ()
    assert plan.unchanged_count == len(before) == len(NAMES) + 4
    assert list(world.management.webhooks.all(world.may)) == before


PAYLOADS: list[Any] = [
    {},
    {"a": ["no", "on", "yes", "null", "~", "", " ", "1", "1.5", "0x1f", "2026-11-21", "12:30", "true", "<<", "- a"]},
    {"a": [0, -1, 1.5, 1e22, 1e-7, 9007199254740993, True, False, None]},
    {"on": ["x"], "1": ["x"], "": ["x"], "a: b": ["#"], "<<": ["x"], "é😀\u2028": ["\ud83d", "\x1b", "\x85", "\t"]},
    {"deep": {"er": {"and": {"er": {"not_in": ["x" * 200]}}}}, "is": {"exists": False}},
    {"many": [f"value number {number}" for number in range(32)]},
    {"a": {"$gt": 9007199254740993, "$lte": 1.5}, "b": {"$glob": r"*\*?"}, "c": {"$fields": {"in": ["$x"], "$y": [1]}}},
    {"$any": [{"a": ["x"]}, {"$not": {"b": {"$any": [[1, 2], {"exists": False}, {"c": {"$prefix": "no"}}]}}}]},
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_any_filter_comes_back_unchanged(world: World, tmp_path: Path, payload: Any):
    world.automation("triage", world.webhook(), payload=payload)

    assert applied_again(world, tmp_path).steps == ()


PROMPTS = [
    "Look.",
    "\n\nLook.\n\n\n",
    "one\r\ntwo\r\n",
    "one\rtwo\r\r\nthree",
    "---\ntriggers: []\n---\n",
    "  indented\n\ttabbed  \n",
    "Title\n=======\n\n<<<<<<< HEAD",
    "😀 \x1b[31m \u2028 \x85 \ufeff",
    "\ufeffLook.",
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_any_prompt_comes_back_unchanged(world: World, tmp_path: Path, prompt: str):
    world.automation("triage", world.webhook(), prompt=prompt)
    before = world.management.automations.get(world.may, "triage")

    assert applied_again(world, tmp_path).steps == ()
    assert world.management.automations.get(world.may, "triage") == before


def test_automations_of_any_name_come_back_unchanged(world: World, tmp_path: Path):
    made = world.webhook()
    for name in NAMES:
        world.automation(name, made, enabled=name != "no")

    plan = applied_again(world, tmp_path)

    assert plan.steps == ()
    assert plan.unchanged_count == len(NAMES) + 1


def test_an_export_reads_as_people_write(world: World):
    made = world.webhook("GitHub: main", delivery_id_header="X-GitHub-Delivery")
    world.management.webhooks.set_enabled(world.may, made.webhook.uid, False)
    world.automation("triage", made, payload={"action": ["opened"], "draft": {"not_in": [True]}}, prompt="# Look")

    assert export(world) == {
        "webhooks/github-main.yaml": (
            "# yaml-language-server: $schema=https://hooks.test/api/v1/schemas/webhook.schema.json\n"
            'name: "GitHub: main"\n'
            "authMode: token\n"
            "secretName: WEBHOOK_GITHUB_MAIN_SECRET\n"
            "deliveryIdHeader: X-GitHub-Delivery\n"
            "enabled: false\n"
        ),
        "automations/triage/automation.md": (
            "---\n"
            "triggers:\n"
            "  - provider: webhook\n"
            "    event: received\n"
            "    filter:\n"
            "      webhook_ids:\n"
            f"        - {made.webhook.uid}  # GitHub: main\n"
            "      payload:\n"
            "        action: [opened]\n"
            "        draft:\n"
            "          not_in: [true]\n"
            "---\n"
            "\n"
            "# Look\n"
        ),
    }


def test_event_types_come_back_unchanged(world: World, tmp_path: Path):
    made = world.webhook("source", event_header="X-Kind")
    selected = {"webhook_ids": [made.webhook.uid], "event": ["push", "Push Hook", "größer: x", "on", "1"]}
    trigger = {"provider": "webhook", "event": "received", "filter": selected}
    created = world.management.automations.create(world.may, "triage", prompt="Look.", triggers=[trigger])

    plan = applied_again(world, tmp_path)

    text = (tmp_path / "automations" / "triage" / "automation.md").read_text(encoding="utf-8")
    assert "event: [push, Push Hook" in text
    assert plan.steps == ()
    assert world.management.automations.get(world.may, "triage").triggers == created.triggers


def test_no_secret_is_in_an_export(world: World):
    made = [world.webhook(), world.webhook("form", auth_mode=AuthMode.URL_TOKEN)]

    text = "".join(export(world).values())

    assert [one.reveal() for one in made if one.reveal() in text] == []


def test_a_secret_that_waits_to_be_taken_up_is_no_hindrance(world: World, tmp_path: Path):
    made = world.webhook()
    world.management.secrets.replace(world.may, made.webhook.secret_name, "newer")

    (step,) = applied_again(world, tmp_path).steps

    assert [change.key for change in step.changes] == ["secret"]


def test_a_deleted_webhook_is_in_no_file(world: World):
    made = world.webhook()
    world.automation("triage", made)
    world.management.webhooks.delete(world.may, "source")

    files = export(world)

    assert list(files) == ["automations/triage/automation.md"]
    assert f"- {made.webhook.uid}  # source" in files["automations/triage/automation.md"]


def test_an_empty_factory_is_two_empty_folders(world: World, tmp_path: Path):
    assert applied_again(world, tmp_path).steps == ()
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".gitkeep", ".gitkeep", "automations", "webhooks"]


def test_an_export_that_no_file_can_hold_fails_and_writes_nothing(world: World):
    prompt = "<<<<<<< HEAD\none\n=======\ntwo\n>>>>>>> other\n"
    world.automation("triage", world.webhook(), prompt=prompt)

    with pytest.raises(definitions.UnusableDefinitions, match="A merge is unresolved here"):
        export(world)


@pytest.mark.parametrize("part", ["webhooks", "automations"])
def test_nothing_is_overwritten(world: World, tmp_path: Path, part: str):
    (tmp_path / part).mkdir()

    with pytest.raises(Conflict, match=r"already exists\. Nothing was written"):
        definitions.write(tmp_path, export(world))
    assert [path.name for path in tmp_path.iterdir()] == [part]


def test_nothing_is_written_through_a_link(world: World, tmp_path: Path):
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "webhooks").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Conflict):
        definitions.write(tmp_path / "into", export(world))


def test_a_state_that_was_exported_can_be_brought_back(world: World, tmp_path: Path):
    made = world.webhook("form", auth_mode=AuthMode.URL_TOKEN, enabled=False)
    definitions.write(tmp_path, export(world))
    may = permission(world)
    wanted = definitions.definitions_for(world.management, may, tmp_path)
    world.management.webhooks.set_enabled(world.may, made.webhook.uid, True)

    definitions.apply(world.management, may, wanted)

    assert world.management.webhooks.get(may, "form").state is WebhookState.DISABLED

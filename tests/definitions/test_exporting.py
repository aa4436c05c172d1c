"""Exports of a factory as definition files. An apply of these files changes nothing."""

from pathlib import Path
from typing import Any

import pytest

from hookmill import definitions
from hookmill.domain.errors import Conflict
from hookmill.domain.permission import Channel, MayManage
from hookmill.domain.webhook import AuthMode, WebhookState
from tests.support.automations import automation_created
from tests.support.sqlite_usually import store_url
from tests.support.triggers import cron_fired, received
from tests.support.world import World

__all__ = ["store_url"]

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


def export_and_apply(world: World, folder: Path) -> definitions.Plan:
    """Export the factory into the folder, and apply the folder. Returns the plan that was applied."""
    definitions.write(folder, export(world))
    may = permission(world)
    files = definitions.definitions_for(world.management, may, definitions.read_folder(folder))
    return definitions.apply(world.management, may, files).plan


def test_export_and_apply_keep_webhooks_of_any_name_and_kind(world, tmp_path):
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
    world.webhook("limited", allowed_networks=["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"], expect_every="36h")
    world.webhook("awaiting", auth_mode=AuthMode.SIGNATURE, signature_scheme="stripe")
    before = list(world.management.webhooks.all(world.may))

    plan = export_and_apply(world, tmp_path)

    assert plan.steps == ()
    assert plan.unchanged_count == len(before) == len(NAMES) + 5
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
def test_export_and_apply_keep_any_filter(world, tmp_path, payload):
    trigger = received(
        world.webhook().webhook.uid, payload=payload, event=["push", "Push Hook", "größer: x", "on", "1"]
    )
    triggers = [cron_fired("often", "@every 1h", catch_up="none"), trigger]
    created = automation_created(world.management, world.may, "triage", triggers=triggers)

    assert export_and_apply(world, tmp_path).steps == ()
    assert world.management.automations.get(world.may, "triage").spec == created.spec


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
def test_export_and_apply_keep_any_prompt(world, tmp_path, prompt):
    world.automation("triage", world.webhook(), prompt=prompt)
    before = world.management.automations.get(world.may, "triage")

    assert export_and_apply(world, tmp_path).steps == ()
    assert world.management.automations.get(world.may, "triage") == before


def test_export_and_apply_keep_automations_of_any_name(world, tmp_path):
    webhook = world.webhook()
    for name in NAMES:
        world.automation(name, webhook, enabled=name != "no")

    plan = export_and_apply(world, tmp_path)

    assert plan.steps == ()
    assert plan.unchanged_count == len(NAMES) + 1


def test_export_has_the_style_of_files_written_by_hand(world):
    webhook = world.webhook("GitHub: main", delivery_id_header="X-GitHub-Delivery")
    world.management.webhooks.set_enabled(world.may, webhook.webhook.uid, False)
    world.automation("triage", webhook, payload={"action": ["opened"], "draft": {"not_in": [True]}}, prompt="# Look")

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
            '      webhook_ids: ["webhook:GitHub: main"]\n'
            "      payload:\n"
            "        action: [opened]\n"
            "        draft:\n"
            "          not_in: [true]\n"
            "---\n"
            "\n"
            "# Look\n"
        ),
    }


def test_export_has_no_file_for_a_deleted_webhook(world):
    webhook = world.webhook()
    world.automation("triage", webhook)
    world.management.webhooks.delete(world.may, "source")

    files = export(world)

    assert list(files) == ["automations/triage/automation.md"]
    assert f"- {webhook.webhook.uid}  # source" in files["automations/triage/automation.md"]


def test_export_of_an_empty_factory_is_two_empty_folders(world, tmp_path):
    assert export_and_apply(world, tmp_path).steps == ()
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".gitkeep", ".gitkeep", "automations", "webhooks"]


def test_export_fails_if_a_prompt_looks_like_an_unresolved_merge(world):
    prompt = "<<<<<<< HEAD\none\n=======\ntwo\n>>>>>>> other\n"
    world.automation("triage", world.webhook(), prompt=prompt)

    with pytest.raises(definitions.UnusableDefinitions, match="A merge is unresolved here"):
        export(world)


@pytest.mark.parametrize("part", ["webhooks", "automations"])
def test_export_overwrites_no_existing_folder(world, tmp_path, part):
    (tmp_path / part).mkdir()

    with pytest.raises(Conflict, match=r"already exists\. Nothing was written"):
        definitions.write(tmp_path, export(world))
    assert [path.name for path in tmp_path.iterdir()] == [part]


def test_export_follows_no_symbolic_link(world, tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "webhooks").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Conflict):
        definitions.write(tmp_path / "target", export(world))


@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt",
        "webhooks/../../outside.yaml",
        "webhooks/a/../../../outside.yaml",
        "automations/../outside.md",
        "webhooks/.yaml",
        "webhooks/a.yaml\0.yaml",
        "webhooks\\..\\outside.yaml",
        "hookmill.toml",
        "{}/outside.yaml",
    ],
)
def test_server_chooses_no_other_files(tmp_path, path):
    folder = tmp_path / "deep" / "export"

    with pytest.raises(definitions.UnusableDefinitions, match="Definition files are"):
        definitions.write(folder, {path.format(tmp_path): "text", "webhooks/source.yaml": "auth_mode: token\n"})

    assert list(tmp_path.iterdir()) == []


def test_apply_restores_an_exported_state(world, tmp_path):
    webhook = world.webhook("form", auth_mode=AuthMode.URL_TOKEN, enabled=False)
    definitions.write(tmp_path, export(world))
    may = permission(world)
    files = definitions.definitions_for(world.management, may, definitions.read_folder(tmp_path))
    world.management.webhooks.set_enabled(world.may, webhook.webhook.uid, True)

    definitions.apply(world.management, may, files)

    assert world.management.webhooks.get(may, "form").state is WebhookState.DISABLED

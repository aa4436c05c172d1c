"""Webhooks that files define: the keys of a file, the secret that it names, and when a change takes effect."""

from pathlib import Path

import pytest

from hookmill import definitions
from hookmill.domain.errors import Conflict
from hookmill.domain.permission import Channel
from tests.spec import shows
from tests.support.service import Answer
from tests.support.world import World

VALUE = "value-of-the-team-0123456789"


def apply(world: World, folder: Path, **files: str):
    """Write the files of webhooks, and apply the folder."""
    (folder / "webhooks").mkdir(exist_ok=True)
    (folder / "automations").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / "webhooks" / f"{name}.yaml").write_text(text)
    may = world.management.access.operator("default", channel=Channel.FILES)
    definitions.apply(
        world.management, may, definitions.definitions_for(world.management, may, definitions.read_folder(folder))
    )


@shows("FILES-1", "FILES-2")
def test_file_defines_a_webhook_and_applying_it_again_keeps_the_uid(world, tmp_path):
    world.management.secrets.create(world.may, "CI_TOKEN", VALUE)
    world.management.secrets.create(world.may, "GITHUB", VALUE)

    apply(
        world,
        tmp_path,
        ci="authMode: token\nsecretName: CI_TOKEN\n",
        repo="authMode: signature\nsignatureScheme: github\nsecretName: GITHUB\n",
    )
    first = {webhook.name: webhook for webhook in world.management.webhooks.all(world.may)}
    apply(world, tmp_path)
    second = {webhook.name: webhook.uid for webhook in world.management.webhooks.all(world.may)}

    assert {name: (each.auth_mode, each.signature_scheme, each.secret_name) for name, each in first.items()} == {
        "ci": ("token", None, "CI_TOKEN"),
        "repo": ("signature", "github", "GITHUB"),
    }
    assert second == {name: each.uid for name, each in first.items()}
    answer = world.request(
        "POST", f"/webhooks/w/{second['ci']}", headers={"Authorization": f"Bearer {VALUE}"}, body=b"{}"
    )
    assert answer.status == 202


@shows("FILES-4")
def test_webhook_defined_by_a_file_cannot_be_renamed_elsewhere(world, tmp_path):
    world.management.secrets.create(world.may, "CI_TOKEN", VALUE)
    apply(world, tmp_path, ci="secretName: CI_TOKEN\n")

    with pytest.raises(Conflict, match="defined by files"):
        world.management.webhooks.change(world.may, "ci", {"name": "another name"})


@shows("FILES-3")
@pytest.mark.parametrize("mode", ["token", "url_token"])
def test_applying_a_file_without_a_usable_secret_changes_nothing(world, tmp_path, mode):
    world.management.secrets.create(world.may, "NOT_URL_SAFE", "not/safe in a URL?")
    secret_name = {"token": "MISSING", "url_token": "NOT_URL_SAFE"}[mode]
    message = {"token": "No team secret is named MISSING", "url_token": "is part of the URL"}[mode]

    with pytest.raises(definitions.UnusableDefinitions, match=message):
        apply(world, tmp_path, ci=f"authMode: {mode}\nsecretName: {secret_name}\n")

    assert world.management.webhooks.all(world.may) == []


@shows("FILES-5")
def test_new_secret_value_takes_effect_at_the_next_sync(world, tmp_path):
    world.management.secrets.create(world.may, "CI_TOKEN", VALUE)
    apply(world, tmp_path, ci="secretName: CI_TOKEN\n")
    [webhook] = world.management.webhooks.all(world.may)

    def status(token):
        headers = {"Authorization": f"Bearer {token}"}
        answer: Answer = world.request("POST", f"/webhooks/w/{webhook.uid}", headers=headers, body=b"{}")
        return answer.status

    world.management.secrets.replace(world.may, "CI_TOKEN", "another-value-0123456789")
    before = (status(VALUE), status("another-value-0123456789"))
    world.management.webhooks.sync(world.may, "ci")
    after = (status(VALUE), status("another-value-0123456789"))

    assert before == (202, 401)
    assert after == (401, 202)

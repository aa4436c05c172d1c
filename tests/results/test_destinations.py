"""The settings of destinations: what is refused, and that no summary has a credential."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hookmill.domain.results import destinations_of
from hookmill.results.destinations import (
    AnyDestination,
    RepositoryDestination,
    SlackDestination,
    WebhookDestination,
)
from hookmill.settings import Settings

GITHUB: dict[str, Any] = {"kind": "github", "secret_from": "GITHUB_TOKEN", "repositories": ["acme/*"]}
APP: dict[str, Any] = {"app_id": "Iv23liabc", "app_key_from": "APP_KEY"}
GITHUB_APP: dict[str, Any] = {"kind": "github", "repositories": ["acme/*"], **APP}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"repositories": []}, "at least 1 item"),
        ({"repositories": ["acme"]}, "is not OWNER/NAME"),
        ({"repositories": ["acme/*/x"]}, "is not OWNER/NAME"),
        ({"url": "http://git.example.com"}, "must begin with https://"),
        ({"url": "https://user:secret@git.example.com"}, "without a password"),
        ({"url": "https://git.example.com?x=1"}, "must have no query"),
        ({"url": "https://git.example.com/ x"}, "visible ASCII"),
        ({"kind": "gitea"}, "the URL of the Gitea's API"),
        ({"secret_from": "HOOKMILL_MASTER_KEY"}, "must not begin with HOOKMILL_"),
        ({"token": "ghp_x"}, "Extra inputs are not permitted"),
        (APP, "set this for a token, or app_id and app_key_from for a GitHub App"),
        ({"secret_from": None}, "set this for a token, or app_id and app_key_from for a GitHub App"),
        ({"secret_from": None, "app_id": "Iv23liabc"}, "set app_id and app_key_from together"),
        ({"secret_from": None, "app_key_from": "APP_KEY"}, "set app_id and app_key_from together"),
        ({"secret_from": None, **APP, "app_id": "../x"}, "should match pattern"),
        ({"secret_from": None, **APP, "app_key_from": "HOOKMILL_MASTER_KEY"}, "must not begin with HOOKMILL_"),
        ({"secret_from": None, **APP, "kind": "gitea", "url": "https://git.example.com"}, "a Gitea has no apps"),
    ],
)
def test_unusable_destination_is_refused(changes, problem):
    with pytest.raises(ValidationError, match=problem):
        RepositoryDestination(**{**GITHUB, **changes})


def test_webhook_without_encryption_is_refused():
    with pytest.raises(ValidationError, match="must begin with https://"):
        WebhookDestination(url="http://ci.example.com", secret_from="CI_SECRET")


@pytest.mark.parametrize(
    ("repository", "is_allowed"),
    [("acme/shop", True), ("ACME/Shop", True), ("acme-evil/shop", False), ("evil/acme", False)],
)
def test_patterns_of_repositories_ignore_case(repository, is_allowed):
    destination = RepositoryDestination(**{**GITHUB, "repositories": ["Acme/*"]})

    assert destination.rules().allows(repository) is is_allowed


def test_summaries_have_no_credentials():
    assert RepositoryDestination.model_validate(GITHUB).summary() == (
        "github at https://api.github.com, with the token in GITHUB_TOKEN, for acme/*"
    )
    assert RepositoryDestination.model_validate({**GITHUB_APP, "app_id": 1234}).summary() == (
        "github at https://api.github.com, as the app 1234 with the key in APP_KEY, for acme/*"
    )
    assert SlackDestination(secret_from="SLACK_URL").summary() == "slack at the URL in SLACK_URL"
    webhook = WebhookDestination(url="https://ci.example.com/secret", secret_from="CI_SECRET")
    assert webhook.summary() == "webhook at https://ci.example.com, signed with the secret in CI_SECRET"


@pytest.mark.parametrize(
    ("factories", "users", "is_usable"),
    [(None, "", True), (["shop", "web"], ", used by shop and web", True), ([], ", used by no factory", False)],
)
def test_destination_is_for_its_factories(factories, users, is_usable):
    destinations: list[AnyDestination] = [
        RepositoryDestination(**GITHUB, factories=factories),
        SlackDestination(secret_from="SLACK_URL", factories=factories),
        WebhookDestination(url="https://ci.example.com", secret_from="CI_SECRET", factories=factories),
    ]

    for destination in destinations:
        assert destination.summary().endswith(users)
        assert ("x" in destinations_of("shop", {"x": destination.rules()})) is is_usable


@pytest.mark.parametrize(
    "runner",
    [
        {"kind": "command", "argv": ["x"], "pass_environment": ["GITHUB_TOKEN"]},
        {"kind": "agent", "agent": "claude", "key_from": "GITHUB_TOKEN"},
    ],
)
@pytest.mark.parametrize("destination", [GITHUB, {**GITHUB_APP, "app_key_from": "GITHUB_TOKEN"}], ids=["token", "app"])
def test_command_never_gets_the_credential_of_a_destination(destination, runner):
    with pytest.raises(ValidationError, match=r"runners\.fix: must not get GITHUB_TOKEN"):
        Settings.model_validate({"destinations": {"github": destination}, "runners": {"fix": runner}})


@pytest.mark.parametrize(("source", "has_app"), [(GITHUB, False), (GITHUB_APP, True)])
def test_only_an_app_may_write_check_runs(source, has_app):
    assert RepositoryDestination(**source).rules().has_app is has_app


def test_destinations_of_the_page_are_valid():
    page = Path(__file__).parents[2] / "docs" / "results.md"
    blocks = re.findall(r"^```toml\n(.+?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)

    destinations = [Settings.model_validate(tomllib.loads(block)).destinations["github"] for block in blocks]

    assert [destination.rules().has_app for destination in destinations] == [False, True]


def test_name_of_a_destination_must_be_usable():
    with pytest.raises(ValidationError, match="can't name a destination"):
        Settings.model_validate({"destinations": {"GitHub": GITHUB}})

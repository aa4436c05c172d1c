"""`hookmill doctor` on the command line: its options, what it asks, and what it prints."""

import pytest

from tests.cli.conftest import Hookmill

NOWHERE = "http://127.0.0.1:1/webhooks/w/wh_x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--factory", "shop"], "--factory needs --through"),
        (["--secret-from-stdin"], "--secret-from-stdin needs --webhook-url"),
        (["--through", "http://127.0.0.1:1", "--webhook-url", NOWHERE], "at most one of"),
        (["--webhook-url", NOWHERE, "--secret-from-stdin", "--json"], "--yes"),
    ],
)
def test_option_without_the_one_that_it_needs_is_refused(hookmill: Hookmill, arguments: list[str], message: str):
    refused = hookmill("doctor", *arguments, stdin=b"private", exit_code=2)

    assert message in " ".join(refused.err.split())


def test_help_says_that_the_secret_is_read_and_not_generated(hookmill: Hookmill):
    text = " ".join(hookmill("doctor", "--help").out.split())

    assert "With --webhook-url: read the secret" in text
    assert "generating" not in text


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "http://127.0.0.1:1/webhooks/w/",
        f"{NOWHERE}?a=b",
        f"{NOWHERE}/private",
        "/webhooks/w/wh_x",
    ],
)
def test_url_that_is_no_webhook_is_refused_without_its_token(hookmill: Hookmill, url: str):
    refused = hookmill("doctor", "--webhook-url", url, "--secret-from-stdin", "--yes", stdin=b"private", exit_code=1)

    assert "This is not the URL of a" in refused.err
    assert "private" not in refused.err


def test_webhook_without_its_secret_is_not_checked(hookmill: Hookmill):
    refused = hookmill("doctor", "--webhook-url", NOWHERE, "--yes", exit_code=1)

    assert "Use --secret-from-stdin." in refused.err


@pytest.mark.parametrize("path", ["", "/{token}"])
def test_webhook_that_cannot_be_reached_is_a_problem(hookmill: Hookmill, path: str):
    arguments = ["doctor", "--webhook-url", NOWHERE + path, "--secret-from-stdin", "--yes"]

    printed = hookmill(*arguments, stdin=b"private\n", exit_code=1)

    assert "problem  delivery          http://127.0.0.1:1 refused the connection" in printed.out
    assert "\n1 problem, no warnings.\n" in printed.out
    assert "private" not in printed.out + printed.err

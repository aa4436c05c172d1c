"""What all groups of commands have in common: empty lists, confirmations, refusals, and names on a terminal."""

import pytest

pytestmark = pytest.mark.usefixtures("log")
"""The commands need a service that was started once."""

UNKNOWN_RUN = "run_" + "0" * 32


@pytest.mark.parametrize(
    ("group", "command"),
    [
        ("webhook", "webhook create NAME"),
        ("key", "key create NAME --role viewer"),
        ("secret", "secret create NAME"),
        ("member", "member add EMAIL --name NAME"),
    ],
)
def test_empty_list_says_how_to_create_an_object(hookmill, group, command):
    assert command in hookmill(group, "list").out


@pytest.mark.parametrize(
    ("create", "delete", "question"),
    [
        ("webhook create x", "webhook delete x", "Delete webhook x ("),
        ("key create x --role viewer", "key revoke x", "Revoke API key x ("),
        ("secret create X", "secret delete X", "Delete team secret X?"),
        ("member add x@example.com --name x", "member remove x@example.com", "Remove x (x@example.com) from the team?"),
    ],
)
def test_deletion_needs_a_confirmation(hookmill, create, delete, question):
    hookmill(*create.split())
    group, command = create.split()[0], delete.split()

    def exists() -> bool:
        items = hookmill(group, "list", "--json").json["items"]
        return any(item.get("revoked_at") is None for item in items)

    unanswered = hookmill(*command, exit_code=1).err
    refused = hookmill(*command, stdin=b"n\n", exit_code=1).err
    in_json = hookmill(*command, "--json", exit_code=2).err

    assert "Nothing was changed" in unanswered
    assert question in refused
    assert "--yes" in in_json
    assert exists()
    hookmill(*command, stdin=b"y\n")
    assert not exists()


@pytest.mark.parametrize(
    ("command", "exit_code", "problem"),
    [
        ("factory create default", 1, "A factory named 'default' already"),
        ("factory change default --max-running 0", 1, "max_running must be a whole number from 1 to 1,000"),
        ("factory change x --max-running 1", 1, "There is no factory 'x'"),
        ("factory change default", 2, "--max-running"),
        ("webhook list --factory nope", 1, "No factory is named 'nope'. The factories are: default."),
        ("webhook show nope", 1, "no webhook 'nope'"),
        ("automation create a --prompt x --webhook nope", 1, "no webhook 'nope'"),
        ("automation create a --prompt-file nope.md --webhook w", 1, "The prompt file nope.md can't be read: No such"),
        ("member role ada@example.com admin", 2, "viewer"),
        ("member add ada --name Ada", 1, "ada@example.com"),
        ("member link nobody@example.com", 1, "There is no member 'nobody@example.com'"),
        ("key create ops --role admin --factory default", 1, "is for the whole team"),
        ("key revoke nobody", 1, "There is no key 'nobody'"),
        ("secret show NOPE", 1, "There is no team secret 'NOPE'"),
        (f"run show {UNKNOWN_RUN}", 1, f"has no run {UNKNOWN_RUN}"),
        (f"delivery show dlv_{'0' * 32}", 1, f"has no delivery dlv_{'0' * 32}"),
        ("delivery show dlv_1", 1, "'dlv_1' is not an id such as dlv_0192f0c1"),
        ("scheme show githup", 1, "'githup' is not a signature scheme. Did you mean github? Allowed are: "),
        ("delivery list --label ok", 2, 'duplicate, rejected_auth or "Rejected (auth)", '),
        ("audit list --before dlv_1", 1, "'dlv_1' is not an id such as aud_0192f0c1"),
    ],
)
def test_refusal_says_what_is_wrong(hookmill, command, exit_code, problem):
    assert problem in hookmill(*command.split(), exit_code=exit_code).err


@pytest.mark.parametrize(
    "create", [("webhook", "create", "{}"), ("secret", "create", "{}"), ("factory", "create", "{}")]
)
def test_second_object_of_the_same_name_is_refused(hookmill, create):
    command = [word.format("TAKEN") for word in create]
    hookmill(*command)

    result = hookmill(*command, exit_code=1)

    assert result.out == ""
    assert "TAKEN" in result.err
    assert "already" in result.err


@pytest.mark.parametrize(
    ("create", "show"),
    [
        ("webhook create NAME", "webhook list"),
        ("webhook create NAME", "webhook show NAME"),
        ("webhook create NAME", "webhook disable NAME"),
        ("webhook create NAME", "audit list"),
        ("member add ada@example.com --name NAME", "member list"),
        ("key create NAME --role viewer", "key list"),
        ("factory create NAME", "factory list"),
    ],
)
def test_markup_and_invisible_characters_of_a_name_have_no_effect(hookmill, create, show):
    name = "a[red]b[/red]\u00a0c"

    outputs = [
        hookmill(*(name if word == "NAME" else word for word in command.split())).out for command in (create, show)
    ]

    assert "a[red]b[/red]\\u00a0c" in outputs[1]
    assert "\u00a0" not in "".join(outputs)

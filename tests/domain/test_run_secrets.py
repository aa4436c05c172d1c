"""Which secrets an automation may name, and in which variables a runner allows them."""

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.masking import SECRET_BYTES_MIN
from hookmill.domain.run_options import NO_OPTIONS, RunOptions
from hookmill.domain.run_secrets import (
    DEFAULT_ALLOWED,
    RunSecret,
    RunSecretRule,
    allowed_pattern,
)
from hookmill.domain.secret import RUN_SECRET_CHARACTERS_MIN, usable_secret_for_runs
from hookmill.domain.spec import read


def test_secret_has_the_variable_of_its_name_or_another_one():
    source = ["NPM_TOKEN", "GH_TOKEN=BILLING_GH_TOKEN", "A=A"]
    options = read(RunOptions, {"secrets": source})

    assert options.run_secrets == (
        RunSecret(variable="NPM_TOKEN", name="NPM_TOKEN"),
        RunSecret(variable="GH_TOKEN", name="BILLING_GH_TOKEN"),
        RunSecret(variable="A", name="A"),
    )
    assert options.as_json() == {"secrets": ["NPM_TOKEN", "GH_TOKEN=BILLING_GH_TOKEN", "A"]}
    assert read(RunOptions, {"secrets": None}) == NO_OPTIONS == read(RunOptions, {"secrets": []})


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        ("GH_TOKEN", "/secrets"),
        ({"GH_TOKEN": "A"}, "/secrets"),
        ([f"A_{number}" for number in range(17)], "/secrets"),
        (["A", 5], "/secrets/1"),
        ([None], "/secrets/0"),
        ([["A"]], "/secrets/0"),
        ([""], "/secrets/0"),
        (["=A"], "/secrets/0"),
        (["A="], "/secrets/0"),
        (["A=B=C"], "/secrets/0"),
        (["A\n"], "/secrets/0"),
        (["a-b"], "/secrets/0"),
        (["A" * 65], "/secrets/0"),
        (["A", "A"], "/secrets/1"),
        (["A", "A=B"], "/secrets/1"),
        (["PATH"], "/secrets/0"),
        (["Path=A"], "/secrets/0"),
        (["LD_PRELOAD=A"], "/secrets/0"),
        (["hookmill_token"], "/secrets/0"),
        (["HOOKMILL_MASTER_KEY"], "/secrets/0"),
    ],
)
def test_unusable_secret_is_refused_with_its_pointer(source, pointer):
    with pytest.raises(Invalid) as refused:
        read(RunOptions, {"secrets": source})

    assert refused.value.faults[0].pointer == pointer


@pytest.mark.parametrize(
    ("variable", "is_allowed"),
    [
        ("GH_TOKEN", True),
        ("deploy_token", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("PGPASSWORD", True),
        ("NODE_OPTIONS", False),
        ("HTTPS_PROXY", False),
        ("ANTHROPIC_BASE_URL", False),
        ("GIT_SSH_COMMAND", False),
        ("GIT_CONFIG_KEY_0", False),
        ("PYTHONPATH", False),
        ("DOCKER_TOKEN", False),
        ("SET_TOKEN", False),
    ],
)
def test_runner_allows_only_credentials_by_default(variable, is_allowed):
    rule = RunSecretRule(forbidden=("DOCKER_*",), set_variables=frozenset({"SET_TOKEN"}))

    assert (rule.problem_of("agent", variable) is None) == is_allowed
    assert (RunSecretRule(allowed=("*",)).problem_of("agent", variable)) is None
    assert RunSecretRule(allowed=()).problem_of("agent", variable) is not None
    assert "no command" in (RunSecretRule(refusal="it starts no command.").problem_of("agent", variable) or "")


@pytest.mark.parametrize("pattern", ["", "a b", "[A-Z]", "A?", "A=B", "é"])
def test_unusable_pattern_is_refused(pattern):
    with pytest.raises(ValueError, match="names of variables"):
        allowed_pattern(pattern)
    assert [allowed_pattern(each) for each in DEFAULT_ALLOWED] == list(DEFAULT_ALLOWED)


def test_every_secret_for_runs_is_long_enough_to_be_masked():
    assert RUN_SECRET_CHARACTERS_MIN >= SECRET_BYTES_MIN
    assert usable_secret_for_runs(" 12345678\n").reveal() == "12345678"
    with pytest.raises(Invalid, match="at least 8 characters"):
        usable_secret_for_runs(" 1234567 ")

"""`hookmill factory`."""

import shlex

import pytest

pytestmark = pytest.mark.usefixtures("log")
"""The commands need a service that was started once."""


def test_create_prints_how_to_add_a_webhook_to_the_empty_factory(hookmill):
    output = hookmill("factory", "create", "our payments").out

    assert output.startswith("Factory our payments is ready. ")
    assert output.endswith("webhook create NAME --factory 'our payments'\n")
    assert hookmill("webhook", "list", "--factory", "our payments", "--json").json == {"items": []}


def test_list_shows_whether_files_define_each_factory(hookmill):
    factory = hookmill("factory", "create", "payments", "--json").json

    assert factory == {"name": "payments", "defined_by_files": False, "max_running": None}
    assert [line.split() for line in hookmill("factory", "list").out.splitlines()] == [
        ["NAME", "DEFINED", "BY", "MAX", "RUNNING"],
        ["default", "hand", "no", "limit"],
        ["payments", "hand", "no", "limit"],
    ]
    assert factory in hookmill("factory", "list", "--json").json["items"]


def test_printed_command_names_the_factory(hookmill):
    hookmill("factory", "create", "payments")

    output = hookmill("webhook", "create", "p", "--disabled", "--factory", "payments").out

    (line,) = [line for line in output.splitlines() if "hookmill webhook enable" in line]
    hookmill(*shlex.split(line.partition("hookmill ")[2]))
    assert hookmill("webhook", "show", "p", "--factory", "payments", "--json").json["enabled"] is True


def test_limit_of_running_runs_is_set_and_removed(hookmill):
    output = hookmill("factory", "change", "default", "--max-running", "3").out
    factories = hookmill("factory", "list", "--json").json["items"]
    unlimited = hookmill("factory", "change", "default", "--no-max-running", "--json").json

    assert output == "Workers perform at most 3 runs of factory default at the same time.\n"
    assert [factory["max_running"] for factory in factories] == [3]
    assert unlimited["max_running"] is None

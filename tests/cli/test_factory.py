"""`hookmill factory`."""

from tests.cli.conftest import Hookmill, LogWriter


def test_a_new_factory_is_empty_and_says_how_to_fill_it(log: LogWriter, hookmill: Hookmill):
    made = hookmill("factory", "create", "our payments").out

    assert made.startswith("Factory our payments is ready. ")
    assert made.endswith("webhook create NAME --factory 'our payments'\n")
    assert hookmill("webhook", "list", "--factory", "our payments", "--json").json == {"webhooks": []}


def test_the_list_says_what_defines_each(log: LogWriter, hookmill: Hookmill):
    made = hookmill("factory", "create", "payments", "--json").json

    assert made == {"name": "payments", "defined_by_files": False, "max_running": None}
    assert [line.split() for line in hookmill("factory", "list").out.splitlines()] == [
        ["NAME", "DEFINED", "BY", "MAX", "RUNNING"],
        ["default", "hand", "no", "limit"],
        ["payments", "hand", "no", "limit"],
    ]
    assert made in hookmill("factory", "list", "--json").json["factories"]


def test_a_name_that_is_taken_is_refused(log: LogWriter, hookmill: Hookmill):
    assert "A factory named 'default' already" in hookmill("factory", "create", "default", exit_code=1).err


def test_lines_that_are_offered_stay_in_their_factory(log: LogWriter, hookmill: Hookmill):
    hookmill("factory", "create", "payments")

    made = hookmill("webhook", "create", "p", "--disabled", "--factory", "payments").out

    (offered,) = [line.split() for line in made.splitlines() if "webhook enable" in line]
    hookmill(*offered[-5:])
    assert hookmill("webhook", "show", "p", "--factory", "payments", "--json").json["enabled"] is True


def test_the_limit_of_running_runs_is_set_and_removed(log: LogWriter, hookmill: Hookmill):
    limited = hookmill("factory", "change", "default", "--max-running", "3").out
    shown = hookmill("factory", "list", "--json").json["factories"]
    unlimited = hookmill("factory", "change", "default", "--no-max-running", "--json").json

    assert limited == "Workers perform at most 3 runs of factory default at the same time.\n"
    assert [each["max_running"] for each in shown] == [3]
    assert unlimited["max_running"] is None


def test_an_unusable_limit_is_refused(log: LogWriter, hookmill: Hookmill):
    assert (
        "max_running must be a whole number from 1 to 1,000"
        in hookmill("factory", "change", "default", "--max-running", "0", exit_code=1).err
    )
    assert "There is no factory 'x'" in hookmill("factory", "change", "x", "--max-running", "1", exit_code=1).err
    hookmill("factory", "change", "default", exit_code=2)

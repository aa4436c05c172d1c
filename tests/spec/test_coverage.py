"""Every requirement is shown by a test, or stands in the list of those that are not yet covered."""

import runpy
import sys

import pytest

from tests.spec import report, shown_by_every_module, shows
from tests.spec.requirements import NOT_YET_COVERED, REQUIREMENTS, TOPICS


def test_every_requirement_is_shown_or_listed_as_not_yet_covered():
    shown = shown_by_every_module()

    assert [each for each in REQUIREMENTS if each not in shown and each not in NOT_YET_COVERED] == []


def test_no_shown_requirement_is_listed_as_not_yet_covered():
    shown = shown_by_every_module()

    assert {each: shown[each] for each in NOT_YET_COVERED if each in shown} == {}


def test_list_of_not_yet_covered_names_existing_requirements():
    assert [each for each in NOT_YET_COVERED if each not in REQUIREMENTS] == []


def test_every_id_and_every_sentence_stands_there_once():
    # Ruff refuses an id that stands twice in one topic.
    assert len(REQUIREMENTS) == sum(len(topic) for topic in TOPICS.values())
    assert len(set(REQUIREMENTS.values())) == len(REQUIREMENTS)


def test_ids_of_a_topic_share_its_prefix_and_ascend():
    prefixes = [{id_.rpartition("-")[0] for id_ in topic} for topic in TOPICS.values()]
    numbers = [[int(id_.rpartition("-")[2]) for id_ in topic] for topic in TOPICS.values()]

    assert [each for each in prefixes if len(each) != 1] == []
    assert len(set().union(*prefixes)) == len(TOPICS)
    assert [each for each in numbers if each != sorted(each)] == []


def test_everything_that_shows_a_requirement_is_a_test():
    names = {name for tests in shown_by_every_module().values() for name in tests}

    assert [name for name in names if not name.partition(".")[2].startswith("test_")] == []


@pytest.mark.parametrize("unknown", ["LIMIT-0", "limit-1", ""])
def test_unknown_id_is_refused(unknown):
    with pytest.raises(ValueError, match=f"No requirement has the id '{unknown}'"):
        shows("LIMIT-1", unknown)


def test_page_of_requirements_is_current():
    assert report.PAGE.read_text() == report.page(), "write it again: python -m tests.spec --write"


def test_command_prints_what_is_not_yet_covered(monkeypatch, capsys):
    printed = printed_by_the_command(monkeypatch, capsys)

    assert REQUIREMENTS["EVENT-1"] in printed
    assert REQUIREMENTS["ENDPOINT-1"] not in printed


def test_command_lists_every_requirement_with_its_tests(monkeypatch, capsys):
    printed = printed_by_the_command(monkeypatch, capsys, "--list")

    assert [each for each in REQUIREMENTS.values() if each not in printed] == []
    assert "    test_states.test_deleted_webhook_stays_deleted\n" in printed


def printed_by_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `python -m tests.spec` prints, in this process, where the modules of tests are loaded already."""
    monkeypatch.setattr(sys, "argv", ["tests.spec", *arguments])
    runpy.run_module("tests.spec", run_name="__main__")
    return capsys.readouterr().out

"""Every requirement has a test, or is listed as not yet covered."""

import runpy
import sys

import pytest

from tests.spec import report, shown_by_every_module, shows
from tests.spec.requirements import NOT_YET_COVERED, REQUIREMENTS, TOPICS


def test_every_requirement_has_a_test_or_is_listed_as_not_yet_covered():
    tests_by_id = shown_by_every_module()

    assert [id_ for id_ in REQUIREMENTS if id_ not in tests_by_id and id_ not in NOT_YET_COVERED] == []


def test_no_requirement_with_a_test_is_listed_as_not_yet_covered():
    tests_by_id = shown_by_every_module()

    assert {id_: tests_by_id[id_] for id_ in NOT_YET_COVERED if id_ in tests_by_id} == {}


def test_list_of_not_yet_covered_names_existing_requirements():
    assert [id_ for id_ in NOT_YET_COVERED if id_ not in REQUIREMENTS] == []


def test_every_id_and_every_sentence_is_unique():
    # Ruff rejects a duplicate id within one topic.
    assert len(REQUIREMENTS) == sum(len(topic) for topic in TOPICS.values())
    assert len(set(REQUIREMENTS.values())) == len(REQUIREMENTS)


def test_ids_of_a_topic_share_its_prefix_and_ascend():
    prefixes = [{id_.rpartition("-")[0] for id_ in topic} for topic in TOPICS.values()]
    numbers = [[int(id_.rpartition("-")[2]) for id_ in topic] for topic in TOPICS.values()]

    assert [each for each in prefixes if len(each) != 1] == []
    assert len(set().union(*prefixes)) == len(TOPICS)
    assert [each for each in numbers if each != sorted(each)] == []


def test_only_tests_are_marked_with_requirements():
    names = {name for tests in shown_by_every_module().values() for name in tests}

    assert [name for name in names if not name.partition(".")[2].startswith("test_")] == []


@pytest.mark.parametrize("unknown", ["LIMIT-0", "limit-1", ""])
def test_unknown_requirement_id_is_rejected(unknown):
    with pytest.raises(ValueError, match=f"No requirement has the id '{unknown}'"):
        shows("LIMIT-1", unknown)


def test_page_of_requirements_is_current():
    assert report.PAGE.read_text() == report.page(), "write the page again: python -m tests.spec --write"


def test_command_prints_the_requirements_without_a_test(monkeypatch, capsys):
    output = command_output(monkeypatch, capsys)

    assert REQUIREMENTS["EVENT-1"] in output
    assert REQUIREMENTS["ENDPOINT-1"] not in output


def test_command_lists_every_requirement_with_its_tests(monkeypatch, capsys):
    output = command_output(monkeypatch, capsys, "--list")

    assert [sentence for sentence in REQUIREMENTS.values() if sentence not in output] == []
    assert "    test_states.test_deleted_webhook_stays_deleted\n" in output


def command_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The output of `python -m tests.spec`. It runs in this process, which has already loaded the tests' modules."""
    monkeypatch.setattr(sys, "argv", ["tests.spec", *arguments])
    runpy.run_module("tests.spec", run_name="__main__")
    return capsys.readouterr().out

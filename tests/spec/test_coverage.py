"""Every requirement has a test, or is listed as not yet covered."""

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


def test_only_tests_are_marked_with_requirements():
    names = {name for tests in shown_by_every_module().values() for name in tests}

    assert [name for name in names if not name.partition(".")[2].startswith("test_")] == []


@pytest.mark.parametrize("unknown", ["LIMIT-0", "limit-1", ""])
def test_unknown_requirement_id_is_rejected(unknown):
    with pytest.raises(ValueError, match=f"No requirement has the id '{unknown}'"):
        shows("LIMIT-1", unknown)


def test_page_of_requirements_is_current():
    assert report.PAGE.read_text() == report.page(), "write the page again: python -m tests.spec --write"

"""Every sentence of the contract is shown by a test, or stands in the list of those that are not yet."""

import runpy

import pytest

from tests.spec import shown_by_every_module, spec
from tests.spec.sentences import NOT_YET_COVERED, SENTENCES, quoted


def test_every_sentence_is_shown_or_listed_as_not_yet_covered():
    shown = shown_by_every_module()

    assert [sentence for sentence in SENTENCES if sentence not in shown and sentence not in NOT_YET_COVERED] == []


def test_no_sentence_that_is_shown_is_still_listed_as_not_yet_covered():
    shown = shown_by_every_module()

    assert {sentence: shown[sentence] for sentence in NOT_YET_COVERED if sentence in shown} == {}


def test_every_sentence_stands_there_once():
    assert len(set(SENTENCES)) == len(SENTENCES)


def test_everything_that_shows_a_sentence_is_a_test():
    names = {name for tests in shown_by_every_module().values() for name in tests}

    assert [name for name in names if not name.partition(".")[2].startswith("test_")] == []


@pytest.mark.parametrize("words", ["no sentence says this", "256 KB"], ids=["of none", "of several"])
def test_words_that_are_not_those_of_one_sentence_are_refused(words):
    with pytest.raises(ValueError, match="sentences of the contract"):
        spec(words)


def test_the_list_of_what_is_not_yet_covered_can_be_printed(capsys: pytest.CaptureFixture[str]):
    # As `python -m tests.spec` does, where all is loaded already that it looks at.
    runpy.run_module("tests.spec", run_name="__main__")

    printed = capsys.readouterr().out
    assert quoted("It is the only document.") in printed
    assert quoted("Method: `POST` only") not in printed

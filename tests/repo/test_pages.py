"""The pages say what the code says."""

import json
import re
from pathlib import Path

import pytest

from hookmill.domain.filters import (
    ALTERNATIVES_MAX,
    CONDITIONS_MAX,
    CONDITIONS_PER_FIELD_MAX,
    DEPTH_MAX,
    OPERATORS,
    PATTERN_CHARACTERS_MAX,
    SET_VALUES_MAX,
    CompiledFilter,
    compile_filter,
)
from hookmill.settings import RunnerSettings, Settings
from scripts import filter_operators
from tests.domain.filter_reference import matches

ROOT = Path(__file__).parents[2]
FILTERS = ROOT / "docs" / "filters.md"


@pytest.mark.parametrize("model", [Settings, RunnerSettings])
def test_every_setting_stands_on_its_page_with_its_meaning(model):
    page = (ROOT / "docs" / "settings.md").read_text()

    missing = [
        name
        for name, field in model.model_fields.items()
        if not re.search(rf"\| `{name}` \|.*{re.escape(field.description)}", page)
    ]

    assert missing == []


def test_the_page_of_settings_names_none_that_is_not_there():
    page = (ROOT / "docs" / "settings.md").read_text()

    named = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))

    assert named == {*Settings.model_fields, *RunnerSettings.model_fields}


def test_the_page_of_filters_has_the_table_of_operators():
    page = FILTERS.read_text()

    assert page == filter_operators.page(page), "write it again: python -m scripts.filter_operators"
    assert [name for name in OPERATORS if f"\n| `{name}` | `" not in page] == []


def test_the_examples_of_filters_match_what_the_page_says():
    rows = re.findall(r"^\|[^|`]+\| `(.+)` \| `(.+)` \| `(.+)` \|$", FILTERS.read_text(), re.MULTILINE)

    assert len(rows) > 10
    assert [row for row in rows if [matches(row[0], body) for body in row[1:]] != [True, False]] == []


def test_every_filter_on_the_page_can_be_saved():
    blocks = re.findall(r"```json\n(.*?)```", FILTERS.read_text(), re.DOTALL)

    assert len(blocks) == 1
    assert [compile_filter(json.loads(block)) for block in blocks if not is_filter(block)] == []


def test_the_numbers_on_the_page_of_filters_are_those_of_the_code():
    refused = FILTERS.read_text().partition("## What is refused")[2]

    assert [int(number) for number in re.findall(r"\b\d+\b", refused)] == [
        DEPTH_MAX,
        CONDITIONS_MAX,
        CONDITIONS_PER_FIELD_MAX,
        SET_VALUES_MAX,
        ALTERNATIVES_MAX,
        PATTERN_CHARACTERS_MAX,
    ]


def is_filter(text: str) -> bool:
    return isinstance(compile_filter(json.loads(text)), CompiledFilter)


def test_every_link_in_a_page_leads_somewhere():
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")

    assert broken == []

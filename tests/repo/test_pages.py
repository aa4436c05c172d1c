"""The pages in docs/ agree with the code."""

import json
import re
from pathlib import Path

import pytest

from hookmill.domain.alarm import AlarmKind
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
from hookmill.runs.runners import RUNNER_KINDS
from hookmill.settings import Settings
from scripts import filter_operators
from tests.domain.filter_reference import matches

ROOT = Path(__file__).parents[2]
FILTERS = ROOT / "docs" / "filters.md"


@pytest.mark.parametrize("model", [Settings, *RUNNER_KINDS.values()])
def test_page_of_settings_describes_every_setting(model):
    page = (ROOT / "docs" / "settings.md").read_text()

    missing = [
        name
        for name, field in model.model_fields.items()
        if not re.search(rf"\| `{name}` \|.*{re.escape(field.description)}", page)
    ]

    assert missing == []


def test_page_of_settings_contains_only_existing_settings():
    page = (ROOT / "docs" / "settings.md").read_text()

    names = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))

    runner_settings = {name for kind in RUNNER_KINDS.values() for name in kind.model_fields}
    assert names == {*Settings.model_fields, *runner_settings}


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        ("alarms.md", AlarmKind),
        ("runners.md", RUNNER_KINDS),
    ],
)
def test_page_names_every_kind(page, kinds):
    text = (ROOT / "docs" / page).read_text()

    assert [str(kind) for kind in kinds if f"`{kind}`" not in text] == []


def test_page_of_filters_contains_the_table_of_operators():
    page = FILTERS.read_text()

    assert page == filter_operators.page(page), "write the page again: python -m scripts.filter_operators"
    assert [name for name in OPERATORS if f"\n| `{name}` | `" not in page] == []


def test_examples_on_the_page_of_filters_are_correct():
    rows = re.findall(r"^\|[^|`]+\| `(.+)` \| `(.+)` \| `(.+)` \|$", FILTERS.read_text(), re.MULTILINE)

    assert len(rows) > 10
    assert [row for row in rows if [matches(row[0], body) for body in row[1:]] != [True, False]] == []


def test_every_filter_on_the_page_can_be_saved():
    blocks = re.findall(r"```json\n(.*?)```", FILTERS.read_text(), re.DOTALL)

    assert len(blocks) == 1
    assert [compile_filter(json.loads(block)) for block in blocks if not is_filter(block)] == []


def test_limits_on_the_page_of_filters_are_those_of_the_code():
    section = FILTERS.read_text().partition("## What is refused")[2]

    assert [int(number) for number in re.findall(r"\b\d+\b", section)] == [
        DEPTH_MAX,
        CONDITIONS_MAX,
        CONDITIONS_PER_FIELD_MAX,
        SET_VALUES_MAX,
        ALTERNATIVES_MAX,
        PATTERN_CHARACTERS_MAX,
    ]


def is_filter(text: str) -> bool:
    return isinstance(compile_filter(json.loads(text)), CompiledFilter)


def test_every_relative_link_has_a_target():
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")

    assert broken == []

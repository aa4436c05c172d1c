"""The pages say what the code says."""

import re
from pathlib import Path

import pytest

from hookmill.domain import filters
from hookmill.settings import RunnerSettings, Settings

ROOT = Path(__file__).parents[2]


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


def test_every_operator_stands_on_the_page_of_filters():
    page = (ROOT / "docs" / "filters.md").read_text()

    assert [name for name in filters.OPERATORS if f'{{"{name}":' not in page] == []


def test_every_link_in_a_page_leads_somewhere():
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")

    assert broken == []

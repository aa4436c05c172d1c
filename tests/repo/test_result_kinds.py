"""Every kind of result is complete: its rules, settings, schema, permissions and page."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest

from hookmill import definitions
from hookmill.domain.definition_run import DefinitionKind
from hookmill.domain.errors import Invalid
from hookmill.domain.filters.globs import read_glob
from hookmill.domain.github_app import PERMISSIONS
from hookmill.domain.results import (
    DESTINATION_KINDS,
    DestinationRules,
    PlannedResult,
    ResultDestinationKind,
    ResultKind,
    plan_results,
)
from hookmill.domain.run_options import RunOptions
from hookmill.domain.spec import read
from hookmill.results.destinations import AnyDestination
from tests.results import scene

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "results.md").read_text()
KEYS = {"context": "ci", "update": False, "repository": "/a", "number": "/b", "commit": "/c", "unknown": "/d"}
DESTINATION_CLASSES = get_args(get_args(AnyDestination)[0])
KINDS_BY_CLASS = {each: get_args(each.model_fields["kind"].annotation) for each in DESTINATION_CLASSES}


@pytest.mark.parametrize("kind", ResultKind)
def test_every_kind_of_result_can_be_declared_and_planned(kind):
    assert DESTINATION_KINDS[kind] != ()
    for destination_kind in DESTINATION_KINDS[kind]:
        assert planned(kind, destination_kind).refusal is None


def test_every_kind_of_destination_has_settings_and_gets_a_result():
    assert sorted(kind for kinds in KINDS_BY_CLASS.values() for kind in kinds) == sorted(ResultDestinationKind)
    assert {kind for kinds in DESTINATION_KINDS.values() for kind in kinds} == set(ResultDestinationKind)


def test_every_kind_of_result_for_github_has_permissions_of_an_app():
    at_github = {
        kind for kind, destinations in DESTINATION_KINDS.items() if ResultDestinationKind.GITHUB in destinations
    }

    assert PERMISSIONS.keys() == at_github


@pytest.mark.parametrize("kind", ResultKind)
def test_schema_of_automations_has_the_keys_of_every_kind_of_result(kind):
    schema = json.loads(definitions.schema(DefinitionKind.AUTOMATION))
    validator = jsonschema_rs.validator_for({**schema["properties"]["results"], "$defs": schema["$defs"]})
    declared: dict[str, Any] = {"kind": kind.value, "destination": "x"}

    for source in (declared, *({**declared, name: value} for name, value in KEYS.items())):
        assert validator.is_valid([source]) is is_read(source), f"{source}: change automation.schema.json"


@pytest.mark.parametrize("kind", ResultKind)
def test_page_of_results_says_when_every_kind_is_sent(kind):
    row = re.search(rf"^\| `{kind}` \| .+ \| (.+) \|$", PAGE, re.MULTILINE)

    assert row is not None, f"docs/results.md has no row for {kind}"
    assert row[1].startswith("when the run starts") is planned(kind, DESTINATION_KINDS[kind][0]).reports_start


def test_page_of_results_has_the_settings_of_every_kind_of_destination():
    table = PAGE.partition("## Destinations")[2].partition("\n\n- ")[0]
    rows = re.findall(r"^\| (`.+?`) \|(.*?)\| (.+) \|$", table, re.MULTILINE)
    kinds_by_key = {key: kinds.strip() for keys, kinds, _ in rows for key in re.findall(r"\w+", keys)}
    meaning_of_kind = next(meaning for keys, _, meaning in rows if keys == "`kind`")

    for each, kinds in KINDS_BY_CLASS.items():
        assert [kind for kind in kinds if f"`{kind}`" not in meaning_of_kind] == []
        for name in each.model_fields.keys() - {"kind"}:
            shown_kinds = kinds_by_key.get(name, "")
            assert shown_kinds == "all" or any(f"`{kind}`" in shown_kinds for kind in kinds), f"{kinds}: {name}"


def planned(kind: ResultKind, destination: ResultDestinationKind) -> PlannedResult:
    """A run's result of this kind, for a destination that allows everything."""
    every = read_glob("*")
    assert every is not None
    rules = DestinationRules(kind=destination, repositories=(every,), has_app=True)
    declared = read(RunOptions, {"results": [{"kind": kind.value, "destination": "x"}]}).results
    [result] = plan_results(declared, json.dumps(scene.PULL_REQUEST).encode(), "a", {"x": rules})
    return result


def is_read(source: dict[str, Any]) -> bool:
    try:
        return len(read(RunOptions, {"results": [source]}).results) == 1
    except Invalid:
        return False

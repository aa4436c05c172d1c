"""Results in the editor of automations, one on each line."""

import html
import re
from typing import Any

import pytest

from tests.dashboard.client import text_of

LINES = (
    "github_comment=github\r\n\r\n github_status=github=ci/review <b> \r\n"
    '{"kind": "github_status", "destination": "github", "context": "x", "commit": "/sha"}\r\nslack=team'
)
RESULTS: list[dict[str, Any]] = [
    {"kind": "github_comment", "destination": "github"},
    {"kind": "github_status", "destination": "github", "context": "ci/review <b>"},
    {"kind": "github_status", "destination": "github", "context": "x", "commit": "/sha"},
    {"kind": "slack", "destination": "team"},
]
FORM = {
    "name": "review",
    "prompt": "Go.",
    "runner": "package",
    "do": "save",
    "schedule_name": "nightly",
    "schedule_cron": "@daily",
}


def text_area(page: bytes) -> str:
    match = re.search(r'<textarea id="results"[^>]*>\n(.*?)</textarea>', page.decode(), re.DOTALL)
    assert match is not None
    return html.unescape(match[1])


def test_results_are_set_kept_with_their_pointers_and_removed(dashboard, manager):
    manager.post("/f/default/automations/new", {**FORM, "results": LINES})
    [automation] = dashboard.management.automations.all(dashboard.world.may)
    path = f"/f/default/automations/{automation.id}/edit"

    def save(version: int, **changes: str) -> list[dict[str, Any]]:
        assert manager.post(path, {**FORM, "version": str(version), **changes}).status == 303
        options = dashboard.management.automations.get(dashboard.world.may, automation.id)
        return [result.as_json() for result in options.results]

    page = manager.get(path).body
    kept = save(1, prompt="Something else.", results=text_area(page))
    removed = save(2)

    assert [result.as_json() for result in automation.results] == kept == RESULTS
    assert "Destinations are github (github), team (slack)." in text_of(page)
    assert removed == []


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("slack=team\r\n\r\nslack", "Line 2: Write KIND=DESTINATION"),
        ("{not JSON", "Line 1: Write KIND=DESTINATION"),
        ("[" * 100_000, "Line 1: Write KIND=DESTINATION"),
        ('{"kind":' * 10_000, "Line 1: Write KIND=DESTINATION"),
        ("slack=team\r\nslack=elsewhere", "Line 2: Factory 'default' may not use a destination 'elsewhere'"),
        ("slack=team\r\nslack=team", "Two of the results are equal."),
        ("<b>=team", "Line 1: kind must be github_check"),
    ],
    ids=range(7),
)
def test_unusable_line_is_shown_again_with_its_problem(dashboard, lines, problem, manager):
    answer = manager.post("/f/default/automations/new", {**FORM, "results": lines})

    assert (answer.status, problem in text_of(answer.body)) == (422, True)
    assert text_area(answer.body).split() == lines.split()
    assert b'aria-invalid="true" aria-describedby="results-problem results-help"' in answer.body

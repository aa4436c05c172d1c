"""Texts about the requirements and the faults: the coverage, the tests of each one, and the page in docs/."""

import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from tests.spec.faults import FAULTS
from tests.spec.requirements import NOT_YET_COVERED, REQUIREMENTS, TOPICS

PAGE: Final = Path(__file__).parents[2] / "docs" / "requirements.md"

INTRODUCTION: Final = """\
# Requirements

Look up here what the service must do, and cite a requirement by its id. An id is never reused or
renumbered. Other pages call these requirements the *contract*.

Tests in `tests/spec` show that the service meets the requirements; `.venv/bin/python -m tests.spec
--list` prints the tests of each one. [Decisions](decisions.md) explains choices that the
requirements leave open and that look surprising. On this page, fields have the names of definition
files. JSON has the same names in `snake_case`.

`.venv/bin/python -m tests.spec --write` writes this page from `tests/spec/requirements.py`.
"""


def coverage(shown: Mapping[str, Collection[str]]) -> str:
    """The number of requirements that tests show, and the requirements that no test shows yet."""
    lines = [f"{len(shown)} of {len(REQUIREMENTS)} requirements are shown by a test. Not yet:"]
    for id_, sentence in REQUIREMENTS.items():
        if id_ not in shown:
            lines.append(f"{id_}: {sentence} ({NOT_YET_COVERED.get(id_, 'without a reason')})")
    return "\n".join(lines)


def listing(shown: Mapping[str, Collection[str]]) -> str:
    """Every requirement with its tests."""
    lines = []
    for id_, sentence in REQUIREMENTS.items():
        lines.append(f"{id_}: {sentence}")
        lines += [f"    {test}" for test in sorted(shown.get(id_, ()))]
    return "\n".join(lines)


def faults() -> str:
    """Every fault with its tests, its names in the drill, and what the tests do not show."""
    lines = []
    for id_, fault in FAULTS.items():
        lines.append(f"{id_}: {fault.what}")
        lines += [f"    tests/{test}" for test in fault.tests]
        if fault.in_drill:
            lines.append(f"    in the drill: {', '.join(fault.in_drill)}")
        if fault.not_shown:
            lines.append(f"    {fault.not_shown}")
    return "\n".join(lines)


def page() -> str:
    """The whole text of docs/requirements.md."""
    sections = [INTRODUCTION]
    for title, requirements in TOPICS.items():
        items = [
            textwrap.fill(f"- **{id_}** {sentence}", 100, subsequent_indent="  ", break_on_hyphens=False)
            for id_, sentence in requirements.items()
        ]
        sections.append(f"## {title}\n\n" + "\n".join(items) + "\n")
    return "\n".join(sections)

"""The files in `deploy/`: a page names each one, a test uses it, and the page of releases says how to try it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm"
"""A page describes the chart as a whole, and a test compares what the whole chart renders."""
TRIED_BY_TESTS = {"caddy", "grafana", "nginx", "prometheus"}
"""The directories whose files the tests use with the real program, or compare with what a script writes."""
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and not path.is_relative_to(CHART))
DIRECTORIES = sorted(path.name for path in DEPLOY.iterdir() if path.is_dir())


def text_of(*files: Path) -> str:
    return "\n".join(file.read_text() for file in files)


def test_every_file_for_a_deployment_is_named_on_a_page():
    pages = text_of(*(ROOT / "docs").glob("*.md"))
    paths = [file.relative_to(ROOT).as_posix() for file in FILES]

    assert [path for path in paths if not re.search(rf"{re.escape(path)}\b", pages)] == []


def test_every_file_for_a_deployment_is_used_by_a_test():
    users = text_of(*(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").glob("*.py"))

    assert [file.name for file in FILES if not re.search(rf'["/]{re.escape(file.name)}"', users)] == []


def test_page_of_releases_says_how_to_try_each_deployment():
    table = (ROOT / "docs" / "releasing.md").read_text().partition("## Try the image and the deployments")[2]
    tried_by_hand = set(re.findall(r"`deploy/(\w+)`", table))

    assert tried_by_hand | TRIED_BY_TESTS == set(DIRECTORIES)
    assert tried_by_hand & TRIED_BY_TESTS == set()

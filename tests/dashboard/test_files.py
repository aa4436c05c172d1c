"""What the dashboard's pages bring along: others' files as they were published, and no more than a page needs."""

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from hookmill.web import dashboard
from tests.dashboard.client import Elements
from tests.dashboard.scene import Scene, pages_by_method, scene_for_test

STATIC = Path(dashboard.__file__).parent / "static"
OURS = {"hookmill.css", "hookmill.js", "icon.svg", "VENDORED.md"}
FIRST_LOAD_BYTES_MAX = 100_000


@pytest.fixture(scope="module")
def scene(migrated_sqlite: Path) -> Iterator[Scene]:
    yield from scene_for_test(migrated_sqlite)


def vendored() -> dict[str, str]:
    """The SHA-256 of others' files, as the page about them says."""
    page = (STATIC / "VENDORED.md").read_text()
    return dict(re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", page, re.MULTILINE))


def brought_by(scene: Scene, path: str) -> dict[str, int]:
    """What a browser loads to show a page, and how large each is."""
    admin = scene.visitors["admin"]
    answer = admin.get(path)
    elements = Elements(answer.body)
    asked_for = [
        *(link.attributes["href"] for link in elements.with_tag("link")),
        *(script.attributes["src"] for script in elements.with_tag("script")),
        *(image.attributes["src"] for image in elements.with_tag("img")),
    ]
    sizes = {path: len(answer.body)}
    for each in asked_for:
        brought = admin.get(each)
        assert brought.status == 200, each
        sizes[each] = len(brought.body)
    return sizes


def test_the_files_of_others_are_as_they_were_published():
    assert {name: sha256((STATIC / name).read_bytes()).hexdigest() for name in vendored()} == vendored()


def test_every_minified_or_licensed_file_is_on_the_licence_page():
    named = vendored()
    licences = {name for name in (STATIC / "VENDORED.md").read_text().split("`") if name.endswith(".LICENSE")}

    assert {path.name for path in STATIC.glob("*.min.*")} <= set(named)
    assert {path.name for path in STATIC.glob("*.LICENSE")} == licences
    assert OURS.isdisjoint(named)


def test_a_first_look_at_the_home_page_takes_less_than_100_kilobytes(scene: Scene):
    sizes = brought_by(scene, "/f/default")

    assert sum(sizes.values()) < FIRST_LOAD_BYTES_MAX, sizes


def test_whatever_page_comes_first_takes_less_than_100_kilobytes(scene: Scene):
    pages = [page for page in pages_by_method("GET") if page.path.startswith(("/f/", "/team", "/settings", "/account"))]
    for page in pages:
        address = scene.path_of(page)
        if scene.visitors["admin"].get(address).headers.get("content-type", "").startswith("text/html"):
            sizes = brought_by(scene, address)
            assert sum(sizes.values()) < FIRST_LOAD_BYTES_MAX, sizes


def test_a_file_may_be_kept_for_good_and_says_what_it_is(scene: Scene):
    answers = {
        path: scene.dashboard.unauthenticated.get(path) for path in brought_by(scene, "/account") if "static" in path
    }

    assert {answer.headers["content-type"].partition(";")[0] for answer in answers.values()} == {
        "text/css",
        "text/javascript",
        "image/svg+xml",
    }
    for path, answer in answers.items():
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert path.split("/")[2] == sha256(answer.body).hexdigest()[:12]


@pytest.mark.parametrize(
    "name",
    [
        "..%2Fapplication.py",
        "%2e%2e/application.py",
        "VENDORED.md",
        "htmx.LICENSE",
        "nothing.css",
        "%2fetc%2fpasswd",
        ".css",
    ],
)
def test_no_other_file_is_served(scene: Scene, name: str):
    assert scene.dashboard.unauthenticated.get(f"/static/any/{name}").status == 404

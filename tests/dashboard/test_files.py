"""The static files of the dashboard: vendored files are unchanged, and a page loads less than 60 KB."""

import gzip
import re
from hashlib import sha256
from pathlib import Path

import pytest

from hookmill.web import dashboard
from tests.dashboard.client import Elements
from tests.dashboard.scene import Scene, pages_by_method, scene_for_test

STATIC = Path(dashboard.__file__).parent / "static"
OWN_FILES = {"hookmill.css", "hookmill.js", "icon.svg", "VENDORED.md"}
FIRST_LOAD_BYTES_MAX = 60_000


@pytest.fixture(scope="module")
def scene(migrated_sqlite):
    yield from scene_for_test(migrated_sqlite)


def vendored_digests() -> dict[str, str]:
    """The SHA-256 of each vendored file, as documented in `VENDORED.md`."""
    page = (STATIC / "VENDORED.md").read_text()
    return dict(re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", page, re.MULTILINE))


def sizes_loaded(scene: Scene, path: str) -> dict[str, int]:
    """The sizes of the page and of each file that a browser loads to show it, in bytes. Files are compressed."""
    admin = scene.visitors["admin"]
    answer = admin.get(path)
    elements = Elements(answer.body)
    urls = [
        *(link.attributes["href"] for link in elements.with_tag("link")),
        *(script.attributes["src"] for script in elements.with_tag("script")),
        *(image.attributes["src"] for image in elements.with_tag("img")),
    ]
    sizes = {path: len(answer.body)}
    for url in urls:
        file = admin.get(url, headers=[("Accept-Encoding", "gzip, deflate, br")])
        assert (file.status, file.headers["content-encoding"]) == (200, "gzip"), url
        sizes[url] = len(file.body)
    return sizes


def test_vendored_files_are_unchanged():
    digests = vendored_digests()

    assert {name: sha256((STATIC / name).read_bytes()).hexdigest() for name in digests} == digests


def test_every_vendored_file_and_licence_is_documented():
    documented = set(vendored_digests())
    licences = {name for name in (STATIC / "VENDORED.md").read_text().split("`") if name.endswith(".LICENSE")}

    assert {path.name for path in STATIC.glob("*.min.*")} <= documented
    assert {path.name for path in STATIC.glob("*.LICENSE")} == licences
    assert OWN_FILES.isdisjoint(documented)


def test_first_load_of_any_page_takes_less_than_60_kilobytes(scene):
    pages = [page for page in pages_by_method("GET") if page.path.startswith(("/f/", "/team", "/settings", "/account"))]
    sizes_by_path = {}

    for path in map(scene.path_of, pages):
        if scene.visitors["admin"].get(path).headers.get("content-type", "").startswith("text/html"):
            sizes_by_path[path] = sizes_loaded(scene, path)

    assert "/f/default" in sizes_by_path
    for sizes in sizes_by_path.values():
        assert sum(sizes.values()) < FIRST_LOAD_BYTES_MAX, sizes


def test_static_files_are_cached_permanently_and_have_their_type(scene):
    paths = [path for path in sizes_loaded(scene, "/account") if "static" in path]

    answers = {path: scene.dashboard.unauthenticated.get(path) for path in paths}

    assert {answer.headers["content-type"].partition(";")[0] for answer in answers.values()} == {
        "text/css",
        "text/javascript",
        "image/svg+xml",
    }
    for path, answer in answers.items():
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert path.split("/")[2] == sha256(answer.body).hexdigest()[:12]


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [("gzip", True), ("deflate, gzip", True), ("", False), ("br", False), ("gzip;q=0", False), ("*", False)],
)
def test_files_are_compressed_for_clients_that_accept_it(scene, accepted, is_compressed):
    headers = [("Accept-Encoding", accepted)] if accepted else []

    answer = scene.dashboard.unauthenticated.get("/static/any/hookmill.css", headers=headers)

    content = gzip.decompress(answer.body) if is_compressed else answer.body
    assert content == (STATIC / "hookmill.css").read_bytes()
    assert ("content-encoding" in answer.headers) is is_compressed
    assert answer.headers["vary"] == "Accept-Encoding"


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
def test_no_other_file_is_served(scene, name):
    assert scene.dashboard.unauthenticated.get(f"/static/any/{name}").status == 404

"""The lines that a diff shows, which alone can have comments of a review, and the texts of its comments."""

import json
from itertools import product

import pytest

from hookmill.domain.check_run import check_run_body
from hookmill.domain.review import ShownLines, draft_of, review_body, shown_lines_of
from tests.domain.test_inert_text import acting, has_code_of
from tests.domain.test_result_text import MARKER, result
from tests.support.markdown_engines import ENGINES, rendered

TWO_FILES = """diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -1 +1,2 @@
-x
+y
+z
\\ No newline at end of file
@@ -10,2 +11,3 @@ def f():
 a
+b

diff --git a/b.py b/b.py
new file mode 100644
--- /dev/null
+++ b/b.py
@@ -0,0 +1 @@
+one
"""


def lines(diff: str) -> dict[str, list[int]]:
    return {
        path: [line for hunk in hunks for line in hunk] for path, hunks in shown_lines_of(diff).hunks_by_path.items()
    }


def test_added_and_context_lines_of_each_hunk_are_shown():
    assert lines(TWO_FILES) == {"a.py": [1, 2, 11, 12, 13], "b.py": [1]}


def test_line_that_looks_like_a_header_is_none():
    hostile = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n--- a/evil\n+++ b/evil\n @@ -1 +9 @@\n"

    assert lines(hostile) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("header", "path"),
    [
        ('"b/\\303\\244 \\"x\\".py"', 'ä "x".py'),
        ("b/with space.py\t", "with space.py"),
        ("b/ä.py", "ä.py"),
    ],
)
def test_unusual_paths_are_read(header, path):
    assert lines(f"--- a/x\n+++ {header}\n@@ -0,0 +1 @@\n+x\n") == {path: [1]}


def test_removed_file_shows_no_lines():
    assert lines("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n") == {}


def test_diff_that_is_cut_shows_its_complete_lines():
    assert lines("--- a/x\n+++ b/x\n@@ -0,0 +1,9 @@\n+one\n+two\n+thr") == {"x": [1, 2]}


@pytest.mark.parametrize(
    "diff", ["", "x", "@@ -1 +1 @@\n+x\n", "+++ b/x\n@@ -99999999999 +1 @@\n", '+++ "b/\\8"\n@@ -0,0 +1 @@\n']
)
def test_unusable_diff_shows_no_lines(diff):
    assert [line for found in lines(diff).values() for line in found] == []


TITLES = [
    '    @octocat fixes #1 <img src="https://evil.example/x.png">', "x\n```", "```", "~~~ @octocat", "`", "- a", "> a",
    "<div>", "<!--", "a | b\n|-|-|", "[a]: /u", "***", "x\\", "www.", "x\u2028/merge", "1. `@octocat`",
]  # fmt: skip
MESSAGES = [
    "    @octocat", "```\n@octocat\n#1\n```", "```\n@octocat", "> ~~~\n> @octocat", "===\n    @octocat", "|-|\n| @a |",
    "  - @octocat", "` @octocat", "* a\n\n      @octocat", "-->\n\n\t@octocat <img src=x>", "</div>\n@octocat",
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("is_shown", [True, False])
def test_no_title_and_message_of_an_annotation_act_together(engine, *, is_shown):
    for title, message in product(TITLES, (f"{message}\n" for message in MESSAGES)):
        source = {"path": "a", "start_line": 1, "annotation_level": "notice", "title": title, "message": message}
        run = result(annotations=json.dumps([source, {**source, "path": "@b"}]))
        lines = ShownLines({path: [range(1, 2)] for path in ("a", "@b")} if is_shown else {})
        body = review_body(run, draft_of(run, ()), lines, commit=None, has_ranges=True)
        check_run = check_run_body(run, name="ci", commit="a" * 40, started_at=0, details_url=None)
        annotation = check_run["output"]["annotations"][0]
        code = rendered(engine, message).code_blocks

        texts = [comment["body"] for comment in body["comments"]] or [body["body"].removeprefix(MARKER)]
        for text in (*texts, annotation["message"]):
            assert acting(engine, text) == [], (title, message)
            assert has_code_of(code, rendered(engine, text).code_blocks), (title, message)
        assert acting(engine, annotation["title"]) == [], (title, message)


def test_title_of_an_annotation_is_one_line():
    source = {"path": "a", "start_line": 1, "annotation_level": "notice", "title": " a\n\n\tb ", "message": "c"}
    run = result(annotations=json.dumps([source, {**source, "title": " \n"}]))
    lines = ShownLines({"a": [range(1, 2)]})
    body = review_body(run, draft_of(run, ()), lines, commit=None, has_ranges=True)

    assert [comment["body"] for comment in body["comments"]] == ["**a b**\n\nc", "c"]

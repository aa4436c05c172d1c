"""The lines that a diff shows. Only they can have comments of a review."""

import pytest

from hookmill.domain.review import shown_lines_of

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
def test_unusual_paths_are_read(header: str, path: str):
    assert lines(f"--- a/x\n+++ {header}\n@@ -0,0 +1 @@\n+x\n") == {path: [1]}


def test_removed_file_shows_no_lines():
    assert lines("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n") == {}


def test_diff_that_is_cut_shows_its_complete_lines():
    assert lines("--- a/x\n+++ b/x\n@@ -0,0 +1,9 @@\n+one\n+two\n+thr") == {"x": [1, 2]}


@pytest.mark.parametrize(
    "diff", ["", "x", "@@ -1 +1 @@\n+x\n", "+++ b/x\n@@ -99999999999 +1 @@\n", '+++ "b/\\8"\n@@ -0,0 +1 @@\n']
)
def test_unusable_diff_shows_no_lines(diff: str):
    assert [line for found in lines(diff).values() for line in found] == []

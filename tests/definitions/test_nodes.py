"""YAML in definition files: which parts of it are supported, and which values it has."""

import time
from typing import Any

import pytest

from hookmill.definitions.nodes import compose, place_at, to_json
from hookmill.definitions.problem import Place


def problems_in(text: str) -> list[str]:
    problems: list[str] = []
    compose(text, lambda place, message: problems.append(f"{place.line}:{place.column}: {message}"))
    return problems


def value(text: str) -> Any:
    node = compose(text, lambda place, message: pytest.fail(f"{place}: {message}"))
    assert node is not None
    return to_json(node)


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("NO", "NO"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("2026-11-21", "2026-11-21"),
        ("1_000", "1_000"),
        ("v1.2", "v1.2"),
        ("0123abc", "0123abc"),
        ("=", "="),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("9007199254740993", 9007199254740993),
        ("1.50", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ('"010"', "010"),
        ("'true'", "true"),
        ("|\n    two\n    lines\n", "two\nlines\n"),
        (">-\n    one\n    line\n", "one line"),
        ("[a, {b: 1}]", ["a", {"b": 1}]),
    ],
)
def test_scalars_have_the_values_of_yaml_1_2(scalar, expected):
    actual = value(f"key: {scalar}\n")["key"]

    assert actual == expected
    assert type(actual) is type(expected)


@pytest.mark.parametrize("number", ["010", "-010", "00.5", "0x1F", "0o17", "0b1", "0x_ff"])
def test_number_that_parsers_read_differently_is_refused(number):
    assert problems_in(f"key: {number}") == [
        "1:6: Some parsers read this as text, others as a number. Put it in quotes, or write it without leading 0."
    ]


@pytest.mark.parametrize("number", ["1e400", "-1e400", "0.10000000000000001", "1e-400", "9" * 700, "1e" + "9" * 50])
def test_number_that_cannot_be_stored_exactly_is_refused(number):
    assert problems_in(f"key: {number}") == [
        "1:6: This number can't be stored exactly. Write it with fewer digits, or put it in quotes if it is text."
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object/apply:os.system [ls]", "1:4: Tags (!) are not supported."),
        ("a: !!str x", "1:4: Tags (!) are not supported."),
        ("a: !local {b: 1}", "1:4: Tags (!) are not supported."),
        ("a: ! x", "1:4: Tags (!) are not supported."),
        ("a: &x 1", "1:4: Anchors (&) are not supported."),
        ("b: *x", "1:4: Aliases (*) are not supported."),
        ("a: 1\n<<: {b: 1}", "2:1: Merge keys (<<) are not supported."),
        ("a: 1\n'b': 2\na: 3", "3:1: a is a duplicate key (first in line 1)."),
        ("a:\n  b: 1\n  b: 1", "3:3: b is a duplicate key (first in line 2)."),
        ("1: a", "1:1: Keys must be text. Put 1 in quotes."),
        ("true: a", "1:1: Keys must be text. Put true in quotes."),
        ("~: a", "1:1: Keys must be text. Put ~ in quotes."),
        ("? [a]\n: b", "1:3: A key must be text, not a list or a mapping."),
        ("%YAML 1.1\n---\na: 1", "1:1: Directives (%) are not supported."),
        ("%UNKNOWN x\n---\na: 1", "1:1: Directives (%) are not supported."),
        ("a: 1\n---\nb: 2", "2:1: A second document begins here"),
        ("a: 1\n...\n---\nb: 2", "3:1: A second document begins here"),
        ("a: .nan", "1:4: JSON has no such number."),
        ("a: -.inf", "1:4: JSON has no such number."),
        ("a:\n\t- b", "2:1: This is not YAML: a tab where only spaces are allowed. Indent with spaces."),
        ("a: b: c", "1:5: This is not YAML: mapping values are not allowed here."),
        ("a: [1", "1:6: This is not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 'x", "1:6: This is not YAML: found unexpected end of stream"),
        ("a: @x", "1:4: This is not YAML: found character '@' that cannot start any token"),
        ('a: "\\q"', "1:6: This is not YAML: found unknown escape character 'q'"),
    ],
)
def test_unsupported_yaml_is_refused_with_its_place(text, message):
    (problem,) = problems_in(text)

    assert problem.startswith(message)


def test_message_about_an_unexpected_colon_asks_about_indentation():
    (problem,) = problems_in("authMode: token\n  secretName: S\n")

    assert problem == (
        "2:13: This is not YAML: mapping values are not allowed here. Is this line, or the one before, indented by "
        "mistake? Put text that contains a colon and a space in quotes."
    )


def test_every_problem_of_a_text_is_reported():
    assert len(problems_in("a: !x 1\nb: &y 2\nc: 010\nc: *y\n")) == 5


@pytest.mark.parametrize("secret", ["!whsec_abc", "&whsec_abc", "*whsec_abc", "0123456789"])
def test_message_does_not_contain_a_value_that_may_be_a_secret(secret):
    (problem,) = problems_in(f"secret: {secret}")

    assert secret[1:] not in problem


def test_alias_bomb_is_refused_without_expansion():
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]

    problems = problems_in("l0: &l0 [lol]\n" + "\n".join(levels))

    assert len(problems) == 12 + 11 * 9


@pytest.mark.parametrize(
    "text",
    ["[" * 60_000, "- " * 30_000, "{a: " * 15_000, "? " * 30_000, "[\n" * 30_000],
    ids=["lists", "dashes", "mappings", "keys", "lists in lines"],
)
def test_deep_nesting_is_refused_within_seconds(text):
    started = time.thread_time()

    (problem,) = problems_in(text)

    assert problem.endswith("The nesting is deeper than 32 levels.")
    assert time.thread_time() - started < 5


def test_nesting_of_the_deepest_filter_is_accepted():
    assert problems_in("[" * 33 + "]" * 33) == []


def test_document_with_only_a_comment_has_no_value():
    assert compose("# only a comment\n", lambda place, message: pytest.fail(message)) is None


@pytest.mark.parametrize(
    ("pointer", "place"),
    [
        ("", (5, 1)),
        ("/a", (6, 3)),
        ("/a/0", (6, 5)),
        ("/a/1/b~1c", (7, 11)),
        ("/a/1/b~1c/0", (7, 12)),
        ("/a/9", (6, 3)),
        ("/missing/deeper", (5, 1)),
    ],
)
def test_json_pointer_is_resolved_to_the_nearest_existing_place(pointer, place):
    node = compose("a:\n  - 1\n  - {b/c: [x]}\n", lambda place, message: pytest.fail(message), first_line=5)
    assert node is not None

    assert place_at(node, pointer) == Place(*place)

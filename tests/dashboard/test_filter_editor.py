"""The filter editor's logic: how it parses the typed filter, shows a payload's fields, and toggles a clicked field."""

import json
from typing import Any

import pytest

from hookmill.domain import payload
from hookmill.domain.filters import DEPTH_MAX, CompiledFilter, compile_filter
from hookmill.domain.payload import Parsed
from hookmill.web.dashboard import filter_editor
from hookmill.web.dashboard.filter_editor import CannotToggle, Node, read_filter, read_triggers, toggle_field, tree
from tests.support.triggers import received

RTL = "\u202e"
HOSTILE = {
    "__proto__": {"constructor": "polluted"},
    "<img src=x onerror=alert(1)>": "</textarea><script>alert(1)</script>",
    f"{RTL}desrever": f"{RTL}eulav",
    "a/b~c": {"~1": 1},
    "": {"": "empty"},
    "in": {"deeper": "x"},
    "$gt": {"exists": {"$fields": "y"}},
    "\ud83d": "\ud83d",
    "null": None,
    "false": False,
    "numbers": [9007199254740993, 1.5, -0.0, 10**300],
    "objects": [{"id": 1, "tags": ["a", "b"]}, {"id": 2}],
}


def parsed(body: Any) -> Parsed:
    result = payload.parse(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert isinstance(result, Parsed)
    return result


def leaves(node: Node) -> list[Node]:
    return [leaf for child in node.children for leaf in leaves(child)] if node.is_branch else [node]


def fields(body: Any, filter_text: str = "") -> list[Node]:
    return leaves(tree(parsed(body).value, read_filter(filter_text, ())).root)


def number_of(body: Any, value: str) -> str:
    """The number of the clickable field with this displayed value."""
    return next(str(node.number) for node in fields(body) if node.display_text == value and node.number is not None)


@pytest.mark.parametrize(
    ("filter_text", "body", "value", "expected"),
    [
        ("", {"a": "x"}, '"x"', {"a": ["x"]}),
        ("  \n ", {"a": {"b": "x"}}, '"x"', {"a": {"b": ["x"]}}),
        ('{"a": ["w"]}', {"a": "x"}, '"x"', {"a": ["w", "x"]}),
        ('{"a": ["w", "x"]}', {"a": "x"}, '"x"', {"a": ["w"]}),
        ('{"a": ["x"], "b": [1]}', {"a": "x"}, '"x"', {"b": [1]}),
        ('{"a": {"b": {"c": ["x"]}}, "d": [1]}', {"a": {"b": {"c": "x"}}}, '"x"', {"d": [1]}),
        ('{"a": {"in": ["w"], "exists": true}}', {"a": "x"}, '"x"', {"a": {"in": ["w", "x"], "exists": True}}),
        ('{"a": {"not_in": ["w"]}}', {"a": "x"}, '"x"', {"a": {"not_in": ["w"], "in": ["x"]}}),
        ('{"a": {"in": ["x"], "not_in": ["w"]}}', {"a": "x"}, '"x"', {"a": {"not_in": ["w"]}}),
        ("", [{"a": "x"}], '"x"', {"a": ["x"]}),
        ("", {"a": [{"b": ["x", "y"]}]}, '"y"', {"a": {"b": ["y"]}}),
        ('{"a": [1]}', {"a": True}, "true", {"a": [1, True]}),
        ('{"a": [1.0]}', {"a": 1}, "1", {}),
        ("", {"in": {"a": None}}, "null", {"in": {"a": [None]}}),
        ("", {"a": {"in": "x"}}, '"x"', {"a": {"$fields": {"in": ["x"]}}}),
        ("", {"$ref": "x"}, '"x"', {"$fields": {"$ref": ["x"]}}),
        ("", {"a": {"notIn": "x"}}, '"x"', {"a": {"$fields": {"notIn": ["x"]}}}),
        ("", {"notIn": "x"}, '"x"', {"notIn": ["x"]}),
        ("", {"a": {"gt": "x"}}, '"x"', {"a": {"gt": ["x"]}}),
        ('{"a": ["w"]}', {"$ref": "x"}, '"x"', {"$fields": {"a": ["w"], "$ref": ["x"]}}),
        ('{"a": {"b": ["w"]}}', {"a": {"$c": "x"}}, '"x"', {"a": {"$fields": {"b": ["w"], "$c": ["x"]}}}),
        ('{"$not": {"b": [1]}}', {"a": "x"}, '"x"', {"$not": {"b": [1]}, "$fields": {"a": ["x"]}}),
        ('{"$not": {"b": [1]}, "$fields": {"a": ["x"]}}', {"a": "x"}, '"x"', {"$not": {"b": [1]}}),
        ('{"$fields": {"a": ["x"]}}', {"a": "x"}, '"x"', {}),
        ('{"a": {"$prefix": "w"}}', {"a": "x"}, '"x"', {"a": {"$prefix": "w", "in": ["x"]}}),
        (
            '{"a": {"exists": true, "$fields": {"b": ["w"]}}}',
            {"a": {"b": "x"}},
            '"x"',
            {"a": {"exists": True, "$fields": {"b": ["w", "x"]}}},
        ),
    ],
)
def test_click_adds_or_removes_the_condition_on_a_field(filter_text, body, value, expected):
    changed = toggle_field(filter_text, parsed(body).value, number_of(body, value))

    assert (json.loads(changed) if changed else {}) == expected
    # Equal values can differ in the order of names, and 1 equals true.
    assert str(json.loads(changed) if changed else {}) == str(expected)


def test_click_lets_the_payload_match_and_a_second_click_undoes_it():
    body = parsed(HOSTILE)
    clickable = [node for node in fields(HOSTILE) if node.number is not None]
    assert len(clickable) == 18

    for node in clickable:
        filter_text = toggle_field("", body.value, str(node.number))
        compiled = compile_filter(parsed(filter_text.encode()).value)
        assert isinstance(compiled, CompiledFilter)
        assert compiled.matches(body), node
        assert node.number in tree(body.value, read_filter(filter_text, ())).chosen_numbers
        assert toggle_field(filter_text, body.value, str(node.number)) == ""


def test_invisible_characters_are_escaped_in_the_filter_and_in_the_tree():
    body = parsed(HOSTILE).value

    filters = "".join(toggle_field("", body, str(number)) for number in range(18))

    assert RTL not in filters
    assert "\\u202eeulav" in filters
    assert not any(
        RTL in node.name + node.display_text or "\ud83d" in node.name + node.display_text for node in fields(HOSTILE)
    )


@pytest.mark.parametrize("number", ["9007199254740993", "-0.5", "1.50", "1e2", "123456789012345678901234567890"])
def test_number_keeps_its_exact_value(number):
    body = parsed(f'{{"n": {number}}}'.encode())

    compiled = compile_filter(parsed(toggle_field("", body.value, "0").encode()).value)

    assert isinstance(compiled, CompiledFilter)
    assert compiled.matches(body)


@pytest.mark.parametrize(
    ("body", "value", "reason"),
    [
        ({"a": [["x"]]}, '"x"', ""),
        (["x"], '"x"', "only named fields"),
        ("x", '"x"', "only named fields"),
        (b'{"a": 0.12345678901234567890123}', "0.12345678901234567890123", "too many digits"),
        (b'{"a": 1e400}', "1E+400", "too many digits"),
    ],
)
def test_field_that_no_filter_can_match_is_not_clickable(body, value, reason):
    [node] = fields(body)

    assert (node.display_text, node.number) == (value, None)
    assert reason in node.unmatchable_reason


def test_field_deeper_than_filters_reach_is_not_clickable():
    deep: Any = "x"
    for _ in range(DEPTH_MAX):
        deep = {"a": deep}

    assert [node.number for node in fields(deep)] == [0]
    assert [node.number for node in fields({"a": deep})] == [None]


@pytest.mark.parametrize(
    ("body", "fields_max"),
    [({f"k{n}": n for n in range(20_000)}, filter_editor.FIELDS_MAX), ([[{"a": 1}] * 3] * 5_000, 500)],
)
def test_only_the_first_fields_of_a_large_payload_are_shown(body, fields_max):
    shown = tree(parsed(body).value, read_filter("", ()))

    assert not shown.is_complete
    assert len(leaves(shown.root)) <= fields_max


def test_deeply_nested_payload_is_shown_incompletely():
    shown = tree(parsed(b'{"a":' * 500 + b"1" + b"}" * 500).value, read_filter("", ()))

    assert not shown.is_complete


@pytest.mark.parametrize(
    ("filter_text", "body", "reason"),
    [
        ('{"a": ["x"', {"a": "x"}, "has errors"),
        ('{"a": {}}', {"a": "x"}, "has errors"),
        ('{"a": ["w"]}', {"a": {"b": "x"}}, "condition on the value of /a"),
        ('{"a": {"exists": true}}', {"a": {"b": "x"}}, "condition on the value of /a"),
        ('{"a": {"b": ["w"]}}', {"a": "x"}, "conditions on fields inside /a"),
        ('{"a": {"$fields": {"b": ["w"]}}}', {"a": "x"}, "conditions on fields inside /a"),
        ('{"a": {"$not": ["w"]}}', {"a": {"b": "x"}}, "condition on the value of /a"),
    ],
)
def test_click_that_cannot_change_the_filter_is_rejected(filter_text, body, reason):
    with pytest.raises(CannotToggle, match=reason):
        toggle_field(filter_text, parsed(body).value, "0")


@pytest.mark.parametrize("number", ["1", "-1", "x", "", "99999999999", "٣"])
def test_unknown_field_number_is_rejected(number):
    with pytest.raises(CannotToggle, match="no such field"):
        toggle_field("", {"a": "x"}, number)


@pytest.mark.parametrize(
    ("filter_text", "line", "column"),
    [
        ('{"a": ["x"', 1, 11),
        ('{\n  "a": ["x"],\n  b\n}', 3, 3),
        ('{"a": ["x"]} y', 1, 14),
        ('{"a": ["x\ny"]}', 1, 10),
        ('{"a": NaN}', 0, 0),
        ("[" * 5000, 0, 0),
        ('{"a": ["x"], "a": ["y"]}', 0, 0),
    ],
)
def test_syntax_error_has_its_line_and_column(filter_text, line, column):
    error = read_filter(filter_text, ()).syntax_error

    assert error is not None
    assert (error.line, error.column) == (line, column)
    assert error.message.endswith(".")


@pytest.mark.parametrize(
    ("filter_text", "pointers"),
    [
        ("[]", [""]),
        ('{"a": {}, "b": {"$in": [1]}}', ["/a", "/b/$in"]),
        ('{"a": {"b~/": {"in": [{}]}}}', ["/a/b~0~1/in/0"]),
        ('{"a": [1e400, 0.12345678901234567890123]}', ["/a/0", "/a/1"]),
    ],
)
def test_every_fault_of_a_filter_has_its_pointer(filter_text, pointers):
    assert [fault.pointer for fault in read_filter(filter_text, ()).faults] == pointers


@pytest.mark.parametrize(
    ("triggers", "pointer"),
    [
        ([], ""),
        ([{}], "/0"),
        ([received("wh_1", payload={"a": {}})], "/0/filter/payload/a"),
    ],
)
def test_pointer_of_a_fault_is_relative_to_the_list_of_triggers(triggers, pointer):
    [fault] = read_triggers(json.dumps(triggers)).faults

    assert fault.pointer == pointer
    assert "/triggers" not in fault.message


def test_formatted_filter_parses_as_its_source():
    source = {"a": ["x" * 40, "y" * 40], "b": {"c": {"not_in": [1, 2.5, None, True]}}, RTL: {"exists": False}}

    text = filter_editor.format_filter(source)

    assert json.loads(text) == source
    assert text.startswith('{\n  "a": [\n    "xxxx')
    assert '"b": {"c": {"not_in": [1, 2.5, null, true]}}' in text

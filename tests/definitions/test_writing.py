"""Written YAML has the original value for the service's own reader, and for readers of YAML 1.1."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hookmill.definitions.nodes import compose, to_json
from hookmill.definitions.writing import lines_of

TEXTS = st.one_of(
    st.text(),
    st.sampled_from(["", "no", "On", "~", "null", "1e3", "010", "0x1", "12:30", "2026-1-1", "<<", "=", "- a", "a: b"]),
)
VALUES = st.recursive(
    st.one_of(TEXTS, st.booleans(), st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def yaml_text(value: dict[str, Any]) -> str:
    return "".join(f"{line}\n" for line in lines_of(value))


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_written_yaml_is_read_as_the_original_value(value):
    node = compose(yaml_text(value), lambda place, message: pytest.fail(f"{place}: {message}"))

    assert node is not None
    assert to_json(node) == value


@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.booleans(), st.none(), st.integers()), min_size=1, max_size=4))
def test_reader_of_yaml_1_1_reads_the_original_value(value):
    assert yaml.safe_load(yaml_text(value)) == value


def test_comment_is_written_after_its_text():
    assert list(lines_of({"ids": ["a", "b"]}, comment_by_text={"a": "the first"})) == [
        "ids:",
        "  - a  # the first",
        "  - b",
    ]

"""JSON pointers: how names are escaped and unescaped."""

import pytest

from hookmill.domain.json_pointer import escape, pointer_to, steps_of, unescape


@pytest.mark.parametrize(
    ("name", "step"),
    [("a", "a"), ("", ""), ("a/b", "a~1b"), ("m~n", "m~0n"), ("~1", "~01"), ("/~", "~1~0"), ('a b%^|\\"', 'a b%^|\\"')],
)
def test_name_is_escaped_and_unescaped(name, step):
    assert escape(name) == step
    assert unescape(step) == name


@pytest.mark.parametrize(
    ("path", "pointer"), [((), ""), (("",), "/"), (("a", 0, "b/c"), "/a/0/b~1c"), (("~", "", "x"), "/~0//x")]
)
def test_path_is_converted_to_a_pointer_and_back(path, pointer):
    assert pointer_to(path) == pointer
    assert steps_of(pointer) == [str(step) for step in path]

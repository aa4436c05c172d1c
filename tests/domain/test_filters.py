"""Which payloads a filter matches, which filters can be saved, and what an explanation contains."""

import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookmill.domain.filters import (
    CLOSEST_OBJECTS_MAX,
    CONDITIONS_MAX,
    DEPTH_MAX,
    OPERATORS,
    SET_VALUES_MAX,
    SHOWN_CHARACTERS_MAX,
    SOURCE_CHARACTERS_MAX,
    CompiledFilter,
    ConditionOutcome,
    Explanation,
    compile_filter,
    exact_json,
)
from tests.domain.filter_reference import (
    NAMES,
    OPERATORS_WITHOUT_DOLLAR,
    body_matches,
    compiled,
    explain,
    filter_texts,
    matches,
    payload,
    payload_texts,
    problems,
    shortened,
    value_with_fractions,
)


def pointers(filter_text: str) -> list[str]:
    return [problem.pointer for problem in problems(payload(filter_text).value)]


CASES = [
    # the empty filter
    ("{}", "{}", True),
    ("{}", '{"a":1}', True),
    ("{}", "[]", True),
    ("{}", "[1]", True),
    ("{}", "1", True),
    ("{}", "null", True),
    ("{}", '""', True),
    # a bare array
    ('{"a":["x"]}', '{"a":"x"}', True),
    ('{"a":["x"]}', '{"a":"y"}', False),
    ('{"a":["x","y"]}', '{"a":"y"}', True),
    ('{"a":["x"]}', '{"a":"X"}', False),
    ('{"a":["x"]}', '{"a":"x "}', False),
    ('{"a":["x"]}', '{"A":"x"}', False),
    ('{"a":["x"]}', '{"b":"x"}', False),
    ('{"a":["x"]}', "{}", False),
    # every key must match
    ('{"a":[1],"b":[2]}', '{"a":1,"b":2}', True),
    ('{"a":[1],"b":[2]}', '{"a":1,"b":3}', False),
    ('{"a":[1],"b":[2]}', '{"a":1}', False),
    ('{"a":[1],"b":[2]}', '{"b":2}', False),
    ('{"a":[1],"b":{"not_in":[2]}}', '{"a":1}', True),
    ('{"a":[1]}', '{"a":1,"z":9}', True),
    # in
    ('{"a":{"in":["x"]}}', '{"a":"x"}', True),
    ('{"a":{"in":["x"]}}', '{"a":"y"}', False),
    ('{"a":{"in":["x"]}}', "{}", False),
    ('{"a":{"in":["x"]}}', '{"a":null}', False),
    ('{"a":{"in":["x"]}}', '{"a":{}}', False),
    ('{"a":{"in":["x"]}}', '{"a":{"x":"x"}}', False),
    ('{"a":{"in":["x"]}}', '{"a":[]}', False),
    ('{"a":{"in":["x"]}}', '{"a":["x"]}', True),
    ('{"a":{"in":["x"]}}', '{"a":["y","x"]}', True),
    ('{"a":{"in":["x"]}}', '{"a":["y","z"]}', False),
    ('{"a":{"in":["x"]}}', '{"a":[["x"]]}', False),
    ('{"a":{"in":["x"]}}', '{"a":[["x"],"x"]}', True),
    ('{"a":{"in":["x"]}}', '{"a":[{"x":"x"}]}', False),
    ('{"a":{"in":["x"]}}', '{"a":[{"x":"x"},[],null,"x"]}', True),
    ('{"a":{"in":[null]}}', '{"a":null}', True),
    ('{"a":{"in":[null]}}', "{}", False),
    ('{"a":{"in":[null]}}', '{"a":[]}', False),
    ('{"a":{"in":[null]}}', '{"a":[1,null]}', True),
    ('{"a":{"in":[""]}}', '{"a":""}', True),
    ('{"a":{"in":[""]}}', '{"a":null}', False),
    ('{"a":[]}', '{"a":"x"}', False),
    ('{"a":[]}', '{"a":[]}', False),
    ('{"a":[]}', "{}", False),
    ('{"a":{"in":[],"exists":false}}', "{}", False),
    ('{"a":{"in":[],"not_in":["x"]}}', '{"a":"y"}', False),
    ('{"a":{"not_in":[]}}', '{"a":"x"}', True),
    ('{"a":{"not_in":[]}}', "{}", True),
    # not_in
    ('{"a":{"not_in":["x"]}}', '{"a":"x"}', False),
    ('{"a":{"not_in":["x"]}}', '{"a":"y"}', True),
    ('{"a":{"not_in":["x","y"]}}', '{"a":"y"}', False),
    ('{"a":{"not_in":["x"]}}', "{}", True),
    ('{"a":{"not_in":["x"]}}', '{"a":null}', True),
    ('{"a":{"not_in":[null]}}', '{"a":null}', False),
    ('{"a":{"not_in":[null]}}', "{}", True),
    ('{"a":{"not_in":["x"]}}', '{"a":{"x":"x"}}', True),
    ('{"a":{"not_in":["x"]}}', '{"a":[]}', True),
    ('{"a":{"not_in":["x"]}}', '{"a":["y"]}', True),
    ('{"a":{"not_in":["x"]}}', '{"a":["y","x"]}', False),
    ('{"a":{"not_in":["x"]}}', '{"a":[["x"]]}', True),
    ('{"a":{"not_in":["x"]}}', '{"a":[{"x":"x"}]}', True),
    # exists
    ('{"a":{"exists":true}}', '{"a":1}', True),
    ('{"a":{"exists":true}}', '{"a":null}', True),
    ('{"a":{"exists":true}}', '{"a":false}', True),
    ('{"a":{"exists":true}}', '{"a":{}}', True),
    ('{"a":{"exists":true}}', '{"a":[]}', True),
    ('{"a":{"exists":true}}', "{}", False),
    ('{"a":{"exists":false}}', "{}", True),
    ('{"a":{"exists":false}}', '{"b":1}', True),
    ('{"a":{"exists":false}}', '{"a":1}', False),
    ('{"a":{"exists":false}}', '{"a":null}', False),
    ('{"a":{"exists":false}}', '{"a":[]}', False),
    # several operators: all must hold
    ('{"a":{"exists":true,"not_in":["x"]}}', '{"a":"y"}', True),
    ('{"a":{"exists":true,"not_in":["x"]}}', '{"a":"x"}', False),
    ('{"a":{"exists":true,"not_in":["x"]}}', "{}", False),
    ('{"a":{"exists":false,"not_in":["x"]}}', "{}", True),
    ('{"a":{"exists":false,"not_in":["x"]}}', '{"a":"y"}', False),
    ('{"a":{"exists":true,"in":["x"]}}', '{"a":"x"}', True),
    ('{"a":{"in":["x"],"not_in":["y"]}}', '{"a":"x"}', True),
    ('{"a":{"in":["x"],"not_in":["y"]}}', '{"a":["x","z"]}', True),
    ('{"a":{"in":["x"],"not_in":["y"]}}', '{"a":["x","y"]}', False),
    # nested objects
    ('{"a":{"b":["x"]}}', '{"a":{"b":"x"}}', True),
    ('{"a":{"b":["x"]}}', '{"a":{"b":"y"}}', False),
    ('{"a":{"b":["x"]}}', '{"a":{}}', False),
    ('{"a":{"b":["x"]}}', "{}", False),
    ('{"a":{"b":["x"]}}', '{"a":null}', False),
    ('{"a":{"b":["x"]}}', '{"a":"x"}', False),
    ('{"a":{"b":["x"]}}', '{"b":"x"}', False),
    ('{"a":{"b":["x"]}}', '{"a":{"a":{"b":"x"}}}', False),
    ('{"a":{"b":{"c":{"d":[1]}}}}', '{"a":{"b":{"c":{"d":1}}}}', True),
    ('{"a":{"b":{"c":{"d":[1]}}}}', '{"a":{"b":{"c":1}}}', False),
    ('{"a":{"b":{"exists":false}}}', '{"a":{}}', True),
    ('{"a":{"b":{"exists":false}}}', '{"a":{"c":1}}', True),
    ('{"a":{"b":{"exists":false}}}', '{"a":{"b":1}}', False),
    ('{"a":{"b":{"exists":false}}}', "{}", False),
    ('{"a":{"b":{"exists":false}}}', '{"a":null}', False),
    ('{"a":{"b":{"exists":false}}}', '{"a":1}', False),
    ('{"a":{"b":{"exists":false}}}', '{"a":[]}', False),
    ('{"a":{"b":{"exists":false}}}', '{"a":[{}]}', True),
    ('{"a":{"b":{"not_in":[1]}}}', "{}", False),
    ('{"a":{"b":{"not_in":[1]}}}', '{"a":{}}', True),
    # arrays of objects: a single element must satisfy all conditions
    ('{"a":{"b":[1]}}', '{"a":[{"b":1}]}', True),
    ('{"a":{"b":[1]}}', '{"a":[{"b":2},{"b":1}]}', True),
    ('{"a":{"b":[1]}}', '{"a":[{"b":2},{"c":1}]}', False),
    ('{"a":{"b":[1]}}', '{"a":[]}', False),
    ('{"a":{"b":[1]}}', '{"a":[1,null,"b"]}', False),
    ('{"a":{"b":[1]}}', '{"a":[1,{"b":1},[]]}', True),
    ('{"a":{"b":[1]}}', '{"a":[[{"b":1}]]}', False),
    ('{"a":{"b":[1]}}', '{"a":[[{"b":1}],{"b":1}]}', True),
    ('{"a":{"b":[1],"c":[2]}}', '{"a":[{"b":1,"c":2}]}', True),
    ('{"a":{"b":[1],"c":[2]}}', '{"a":[{"b":1,"c":0},{"b":0,"c":2}]}', False),
    ('{"a":{"b":[1],"c":[2]}}', '{"a":[{"b":1},{"c":2}]}', False),
    ('{"a":{"b":[1],"c":[2]}}', '{"a":[{"b":1},{"c":2},{"c":2,"b":1}]}', True),
    ('{"a":{"b":[1],"c":{"not_in":[2]}}}', '{"a":[{"b":1,"c":2},{"b":1}]}', True),
    ('{"a":{"b":[1],"c":{"not_in":[2]}}}', '{"a":[{"b":1,"c":2},{"b":3}]}', False),
    ('{"a":{"b":{"not_in":[1]}}}', '{"a":[{"b":1},{"b":2}]}', True),
    ('{"a":{"b":{"not_in":[1]}}}', '{"a":[{"b":1},{"b":1}]}', False),
    ('{"a":{"b":{"c":[1],"d":[2]}}}', '{"a":[{"b":[{"c":1}]},{"b":[{"d":2}]}]}', False),
    ('{"a":{"b":{"c":[1],"d":[2]}}}', '{"a":[{"b":[{"c":1}]},{"b":[{"d":2},{"c":1,"d":2}]}]}', True),
    ('{"a":{"b":{"c":[1]},"d":[2]}}', '{"a":[{"b":{"c":1},"d":0},{"b":{"c":0},"d":2}]}', False),
    ('{"a":{"b":["x"]}}', '{"a":[{"b":["y","x"]}]}', True),
    # the body itself
    ('{"a":[1]}', '[{"a":1}]', True),
    ('{"a":[1]}', '[{"a":2},{"a":1}]', True),
    ('{"a":[1]}', '[1,null,{"a":1}]', True),
    ('{"a":[1]}', '[{"a":2}]', False),
    ('{"a":[1]}', "[]", False),
    ('{"a":[1]}', "[1]", False),
    ('{"a":[1]}', '[[{"a":1}]]', False),
    ('{"a":[1],"b":[2]}', '[{"a":1},{"b":2}]', False),
    ('{"a":{"not_in":[1]}}', "[]", False),
    ('{"a":{"exists":false}}', "[]", False),
    ('{"a":{"exists":false}}', "[{}]", True),
    ('{"a":[1]}', "1", False),
    ('{"a":["a"]}', '"a"', False),
    ('{"a":{"not_in":[1]}}', "1", False),
    ('{"a":{"exists":false}}', "null", False),
    ('{"a":{"exists":false}}', '"a"', False),
    # more fields in the filter than in the payload, and the reverse
    ('{"a":{"not_in":[1]},"b":{"not_in":[1]},"c":{"not_in":[1]}}', '{"c":1}', False),
    ('{"a":{"not_in":[1]},"b":{"not_in":[1]},"c":{"not_in":[1]}}', '{"c":2}', True),
    ('{"a":{"not_in":[1]},"b":{"exists":true},"c":{"not_in":[1]}}', '{"c":2}', False),
    ('{"a":[1]}', '{"b":1,"c":1,"d":1,"a":1}', True),
    # names have no special meaning
    ('{"__class__":{"exists":true}}', "{}", False),
    ('{"__class__":{"exists":true}}', '{"__class__":null}', True),
    ('{"__proto__":{"x":[1]}}', "{}", False),
    ('{"__proto__":{"x":[1]}}', '{"__proto__":{"x":1}}', True),
    ('{"constructor":{"exists":true}}', "{}", False),
    ('{"__len__":{"exists":true},"keys":{"exists":true}}', '{"a":1}', False),
    ('{"a":{"length":[2]}}', '{"a":[1,2]}', False),
    ('{"a":{"0":[1]}}', '{"a":[1]}', False),
    ('{"a":{"0":[1]}}', '{"a":{"0":1}}', True),
    ('{"a.b":[1]}', '{"a":{"b":1}}', False),
    ('{"a.b":[1]}', '{"a.b":1}', True),
    ('{"a/b":[1]}', '{"a/b":1}', True),
    ('{"":[1]}', '{"":1}', True),
    ('{"":[1]}', '{"a":1}', False),
    ('{"*":[1]}', '{"a":1}', False),
    ('{"a":[".*"]}', '{"a":"x"}', False),
    ('{"\\u0000":[1]}', '{"\\u0000":1}', True),
    ('{"\\ud83d":["\\ude00"]}', '{"\\ud83d":"\\ude00"}', True),
    ('{"é":[1]}', '{"e\\u0301":1}', False),
    # at the top level, a field can have the name of an operator
    ('{"in":["x"]}', '{"in":"x"}', True),
    ('{"in":["x"]}', '["x"]', False),
    ('{"not_in":["x"]}', '{"not_in":"x"}', True),
    ('{"not_in":["x"]}', "{}", False),
    ('{"exists":[true]}', '{"exists":true}', True),
    ('{"exists":{"exists":true}}', '{"exists":false}', True),
    ('{"in":{"in":["x"]},"a":[1]}', '{"in":"x","a":1}', True),
    ('{"notIn":["x"]}', '{"notIn":"x"}', True),
    # below the top level, a name that differs from an operator in letter case is a field
    ('{"states":{"IN":["open"]}}', '{"states":{"IN":"open"}}', True),
    ('{"a":{"Exists":[true]}}', '{"a":{"Exists":true}}', True),
    # names of other operators are fields, unless they begin with a dollar sign
    ('{"gt":["x"],"any":["y"]}', '{"gt":"x","any":"y"}', True),
    ('{"a":{"gt":["x"],"prefix":{"not":["y"]}}}', '{"a":{"gt":"x","prefix":{"not":"y"}}}', True),
    ('{"a":{"gt":["x"],"prefix":{"not":["y"]}}}', '{"a":{"gt":"x","prefix":"y"}}', False),
    # the last of equal names counts
    ('{"a":[1]}', '{"a":2,"a":1}', True),
    ('{"a":[1]}', '{"a":1,"a":2}', False),
    ('{"a":[2],"a":[1]}', '{"a":1}', True),
    ('{"a":{"b":[1]}}', '{"a":{"b":1},"a":{}}', False),
]


def test_filter_matches_these_payloads_and_no_others(subtests):
    for filter_text, payload_text, expected in CASES:
        with subtests.test(filter_text=filter_text, payload_text=payload_text):
            assert matches(filter_text, payload_text) is expected


# Each line contains spellings of one value, which differs from the values of all other lines.
VALUES = [
    ["null"],
    ["true"],
    ["false"],
    ["0", "-0", "0.0", "-0.0", "0e5", "0e99999999999999999999"],
    ["1", "1.0", "1e0", "0.1e1", "10e-1", "1.000"],
    ["-1", "-1.0", "-1e0"],
    ["2", "2.0"],
    ["0.1", "1e-1", "0.10"],
    ["0.1000000000000000055511151231257827"],
    ["9007199254740992", "9007199254740992.0", "9.007199254740992e15"],
    ["9007199254740993", "9007199254740993.0", "9.007199254740993e15"],
    ["18446744073709551616", "18446744073709551616.0"],
    ["18446744073709551617", "18446744073709551617.0"],
    ["1e400", "1E+400", "1" + "0" * 400, "0.1e401"],
    ["-1e400"],
    ["1e-400"],
    ["1e999999999", "10e999999998"],
    ["1e99999999999999999999", "10e99999999999999999998", "0.1e100000000000000000000"],
    ["-1e99999999999999999999"],
    ["1e-99999999999999999999"],
    ["9" * 5_000, "9" * 5_000 + ".0", "0." + "9" * 5_000 + "e5000"],
    ["9" * 4_999 + "8"],
    ['""'],
    ['"0"'],
    ['"1"', '"\\u0031"'],
    ['"1.0"'],
    ['"true"'],
    ['"True"'],
    ['"false"'],
    ['"null"'],
    ['"a"', '"\\u0061"'],
    ['"A"'],
    ['"a "'],
    ['"é"', '"\\u00e9"', '"\\u00E9"'],
    ['"e\\u0301"'],
    ['"ß"'],
    ['"ss"'],
    ['"😀"', '"\\ud83d\\ude00"'],
    ['"\\ud83d"'],
    ['"\\ude00"'],
    ['"\\u0000"'],
]
CONTAINERS = ["[]", "{}", "[[]]", "[[1]]", "[{}]", '{"a":1}', '{"1":1}', '[{"a":1}]']


@pytest.mark.parametrize("one", range(len(VALUES)), ids=lambda line: shortened(VALUES[line][0]))
def test_value_equals_itself_in_every_spelling_and_no_other_value(one):
    for operand in VALUES[one]:
        value_filter = compiled(f'{{"a":[{operand}]}}')
        for other, spellings in enumerate(VALUES):
            for spelling in spellings:
                assert value_filter.matches(payload(f'{{"a":{spelling}}}')) is (one == other), (operand, spelling)
                assert value_filter.matches(payload(f'{{"a":[{{}},{spelling}]}}')) is (one == other), (
                    operand,
                    spelling,
                )


@pytest.mark.parametrize("line", VALUES, ids=lambda line: shortened(line[0]))
def test_objects_and_arrays_equal_no_value(line):
    value_filter = compiled(f'{{"a":[{line[0]}]}}')

    assert [container for container in CONTAINERS if value_filter.matches(payload(f'{{"a":{container}}}'))] == []


def test_python_float_counts_as_its_shortest_decimal_form():
    float_filter = compile_filter({"a": [0.1, 1e22, -0.0]})

    assert isinstance(float_filter, CompiledFilter)
    assert float_filter.matches(payload('{"a":0.1}'))
    assert float_filter.matches(payload('{"a":10000000000000000000000}'))
    assert float_filter.matches(payload('{"a":0}'))
    assert not float_filter.matches(payload('{"a":0.1000000000000000055511151231257827}'))


def nested(depth: int, inner: str = '["x"]') -> str:
    return '{"a":' * depth + inner + "}" * depth


def fields(count: int) -> str:
    return "{" + ",".join(f'"f{number}":[1]' for number in range(count)) + "}"


def values(count: int) -> str:
    return "[" + ",".join(map(str, range(count))) + "]"


REFUSED = [
    # not a filter
    ("[]", [""]),
    ("1", [""]),
    ("null", [""]),
    ('"a"', [""]),
    ("true", [""]),
    ('[{"a":["x"]}]', [""]),
    # a value that is neither an array nor an object
    ('{"a":"x"}', ["/a"]),
    ('{"a":1}', ["/a"]),
    ('{"a":null}', ["/a"]),
    ('{"a":true}', ["/a"]),
    ('{"a":{"b":"x"}}', ["/a/b"]),
    # unknown operators
    ('{"a":{"gt":5}}', ["/a/gt"]),
    ('{"a":{"regex":".*"}}', ["/a/regex"]),
    ('{"a":{"equals":null}}', ["/a/equals"]),
    ('{"a":{"$in":["x"]}}', ["/a/$in"]),
    ('{"a":{"$not_in":["x"]}}', ["/a/$not_in"]),
    ('{"a":{"notIn":["x"]}}', ["/a/notIn"]),
    ('{"a":{"not-in":["x"]}}', ["/a/not-in"]),
    ('{"a":{"not in":["x"]}}', ["/a/not in"]),
    ('{"a":{"$exists":true}}', ["/a/$exists"]),
    # sets
    ('{"a":{"in":"x"}}', ["/a/in"]),
    ('{"a":{"in":null}}', ["/a/in"]),
    ('{"a":{"in":{"b":[1]}}}', ["/a/in"]),
    ('{"a":{"not_in":1}}', ["/a/not_in"]),
    ('{"a":[["x"]]}', ["/a/0"]),
    ('{"a":["x",{}]}', ["/a/1"]),
    ('{"a":{"in":["x",[],"y",{}]}}', ["/a/in/1", "/a/in/3"]),
    ('{"a":{"not_in":[[]]}}', ["/a/not_in/0"]),
    (f'{{"a":{values(SET_VALUES_MAX + 1)}}}', ["/a"]),
    (f'{{"a":{{"in":{values(SET_VALUES_MAX + 1)}}}}}', ["/a/in"]),
    (f'{{"a":{{"not_in":{values(SET_VALUES_MAX + 1)}}}}}', ["/a/not_in"]),
    # exists
    ('{"a":{"exists":1}}', ["/a/exists"]),
    ('{"a":{"exists":0}}', ["/a/exists"]),
    ('{"a":{"exists":null}}', ["/a/exists"]),
    ('{"a":{"exists":"true"}}', ["/a/exists"]),
    ('{"a":{"exists":[true]}}', ["/a/exists"]),
    ('{"a":{"exists":{"exists":true}}}', ["/a/exists"]),
    # empty objects
    ('{"a":{}}', ["/a"]),
    ('{"a":{"b":{}}}', ["/a/b"]),
    # operators and fields in one object
    ('{"a":{"in":[1],"b":[2]}}', ["/a"]),
    ('{"a":{"b":[2],"in":[1]}}', ["/a"]),
    ('{"a":{"exists":true,"b":{"c":[1]}}}', ["/a"]),
    ('{"a":{"b":{"not_in":[1],"c":[2]}}}', ["/a/b"]),
    ('{"a":{"in":[1],"gt":5}}', ["/a", "/a/gt"]),
    ('{"a":{"in":[{}],"b":{}}}', ["/a", "/a/b", "/a/in/0"]),
    # contradictions
    ('{"a":{"in":["x"],"not_in":["x"]}}', ["/a/not_in/0"]),
    ('{"a":{"in":["x","y"],"not_in":["z","y","x"]}}', ["/a/not_in/1", "/a/not_in/2"]),
    ('{"a":{"in":[1],"not_in":[1.0]}}', ["/a/not_in/0"]),
    ('{"a":{"in":[null],"not_in":[null]}}', ["/a/not_in/0"]),
    ('{"a":{"exists":false,"in":["x"]}}', ["/a/exists"]),
    ('{"a":{"exists":false,"in":["x"],"not_in":["x"]}}', ["/a/exists", "/a/not_in/0"]),
    # size
    (nested(DEPTH_MAX + 1), ["/a" * (DEPTH_MAX + 1)]),
    (nested(500), ["/a" * (DEPTH_MAX + 1)]),
    (fields(CONDITIONS_MAX + 1), [""]),
    ('{"a":["' + "x" * SOURCE_CHARACTERS_MAX + '"]}', [""]),
    # pointers are escaped
    ('{"a/b":{"c~d":"x"}}', ["/a~1b/c~0d"]),
    ('{"":{"":1}}', ["//"]),
    ('{"\\n\\ud83d":1}', ["/\\u000a\\ud83d"]),
    # several problems, in the filter's order
    (
        '{"a":"x","b":{"c":{}},"d":{"in":[1],"e":[2]},"f":{"exists":1},"g":["ok"],"h":[{}]}',
        ["/a", "/b/c", "/d", "/f/exists", "/h/0"],
    ),
]


@pytest.mark.parametrize(("filter_text", "expected_pointers"), REFUSED, ids=shortened)
def test_invalid_filter_is_refused_with_a_pointer_to_every_problem(filter_text, expected_pointers):
    assert pointers(filter_text) == expected_pointers


@pytest.mark.parametrize("filter_text", [filter_text for filter_text, _ in REFUSED], ids=shortened)
def test_message_of_a_problem_is_a_printable_sentence(filter_text):
    for problem in problems(payload(filter_text).value):
        assert problem.message.endswith(".")
        assert problem.message.isprintable()
        assert len(problem.message) < 300


ACCEPTED = [
    "{}",
    '{"a":{"exists":false,"not_in":["x"]}}',
    '{"a":{"exists":true,"in":["x"]}}',
    '{"a":{"in":[1],"not_in":[true]}}',
    '{"a":{"in":["1"],"not_in":[1]}}',
    '{"a":[1,1.0]}',
    nested(DEPTH_MAX),
    nested(DEPTH_MAX - 1, '{"exists":true}'),
    fields(CONDITIONS_MAX),
    f'{{"a":{values(SET_VALUES_MAX)}}}',
    '{"a":["' + "x" * (SOURCE_CHARACTERS_MAX - 10) + '"]}',
]


@pytest.mark.parametrize("filter_text", ACCEPTED, ids=shortened)
def test_filter_at_the_limits_can_be_saved(filter_text):
    assert compiled(filter_text).source == payload(filter_text).value


@pytest.mark.parametrize(
    ("filter_text", "message_part"),
    [
        ('{"a":{"gt":5}}', "For the operator write `$gt`."),
        ('{"a":{"equals":5}}', f"Operators are {', '.join(OPERATORS)}."),
        ('{"a":{"$in":["x"]}}', "Unknown operator."),
        ('{"a":{"in":[1],"b":[2]}}', '`in` is an operator and "b" is a field.'),
        ('{"a":"x"}', "Write the values as an array"),
        (nested(11), "at most 10 levels deep"),
        (fields(65), "more than 64 conditions"),
        (f'{{"a":{values(33)}}}', "33 values in one array. Keep to 32 or fewer."),
    ],
    ids=shortened,
)
def test_message_of_a_problem_names_the_mistake(filter_text, message_part):
    assert message_part in problems(payload(filter_text).value)[0].message


def test_every_operator_of_a_field_counts_as_a_condition():
    two_each = "{" + ",".join(f'"f{n}":{{"in":[1],"not_in":[2]}}' for n in range(CONDITIONS_MAX // 2)) + "}"
    one_more = two_each[:-1] + ',"z":[1]}'

    assert isinstance(compile_filter(payload(two_each).value), CompiledFilter)
    assert pointers(one_more) == [""]


@pytest.mark.parametrize(
    "source",
    [
        {True: ["x"]},
        {None: ["x"]},
        {1: ["x"]},
        {1.5: ["x"]},
        {("a",): ["x"]},
        {"a": {True: ["x"]}},
        {"a": [float("nan")]},
        {"a": [float("inf")]},
        {"a": [Decimal("NaN")]},
        {"a": [b"x"]},
        {"a": [object]},
        {"a": ("x",)},
        {"a": {"x"}},
        {"a": b"x"},
        {"a": {"in": ("x",)}},
        {10**5_000: ["x"]},
        object(),
        b"{}",
    ],
    ids=lambda source: type(source).__name__ if isinstance(source, object) and not isinstance(source, dict) else None,
)
def test_source_that_json_cannot_express_has_problems_and_never_raises(source):
    assert problems(source)


def test_huge_invalid_filter_is_refused_quickly():
    wide: dict[str, Any] = {"x": 1}
    for _ in range(DEPTH_MAX + 5):
        wide = {str(number): wide for number in range(20)}
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    started = time.thread_time()

    assert 0 < len(problems(wide)) < 2_000
    assert len(problems(deep)) == 1
    assert time.thread_time() - started < 2
    while deep:
        deep = deep["a"]


def only_outcome(explanation: Explanation) -> ConditionOutcome:
    assert len(explanation.conditions) == 1
    return explanation.conditions[0]


@pytest.mark.parametrize(
    ("filter_text", "payload_text", "pointer", "operator", "expected", "actual", "held"),
    [
        ('{"a":["x"]}', '{"a":"x"}', "/a", "in", '["x"]', '"x"', True),
        ('{"a":["x"]}', '{"a":"y"}', "/a", "in", '["x"]', '"y"', False),
        ('{"a":["x"]}', "{}", "/a", "in", '["x"]', "missing", False),
        ('{"a":["x"]}', '{"a":"missing"}', "/a", "in", '["x"]', '"missing"', False),
        ('{"a":["x"]}', '{"a":null}', "/a", "in", '["x"]', "null", False),
        ('{"a":{"not_in":["x"]}}', "{}", "/a", "not_in", '["x"]', "missing", True),
        ('{"a":{"not_in":["x"]}}', '{"a":"x"}', "/a", "not_in", '["x"]', '"x"', False),
        ('{"a":{"exists":true}}', "{}", "/a", "exists", "true", "missing", False),
        ('{"a":{"exists":false}}', "{}", "/a", "exists", "false", "missing", True),
        ('{"a":{"exists":false}}', '{"a":{"b":1}}', "/a", "exists", "false", "{…}", False),
        ('{"a":{"exists":true}}', '{"a":[1,2]}', "/a", "exists", "true", "[1, 2]", True),
        ('{"a":[1]}', '{"a":true}', "/a", "in", "[1]", "true", False),
        ('{"a":[1]}', '{"a":1.0}', "/a", "in", "[1]", "1.0", True),
        ('{"a":[1]}', '{"a":1e400}', "/a", "in", "[1]", "1E+400", False),
        ('{"a":[1]}', '{"a":{}}', "/a", "in", "[1]", "{}", False),
        ('{"a":["x"]}', '{"a":[]}', "/a", "in", '["x"]', "[]", False),
        ('{"a":["x"]}', '{"a":["y",[1],{"b":1},{}]}', "/a", "in", '["x"]', '["y", […], {…}, {}]', False),
        ('{"a":["x"]}', '{"a":["y","x","x"]}', "/a/1", "in", '["x"]', '"x"', True),
        ('{"a":{"not_in":["x"]}}', '{"a":["y","x"]}', "/a/1", "not_in", '["x"]', '"x"', False),
        ('{"a":{"not_in":["x"]}}', '{"a":["y"]}', "/a", "not_in", '["x"]', '["y"]', True),
        ('{"a":["x"]}', '{"a":[["x"]]}', "/a", "in", '["x"]', "[[…]]", False),
        ('{"a":{"b":[1]}}', '{"a":{"b":2}}', "/a/b", "in", "[1]", "2", False),
        ('{"a":{"b":[1]}}', '{"a":[{"b":2},{"b":1}]}', "/a/1/b", "in", "[1]", "1", True),
        ('{"a":{"b":[1]}}', '{"a":[0,{"c":2},{"b":3}]}', "/a/1/b", "in", "[1]", "missing", False),
        ('{"a":[1]}', '[0,{"a":1}]', "/1/a", "in", "[1]", "1", True),
        ('{"a/b":{"c~d":[1]}}', '{"a/b":{"c~d":1}}', "/a~1b/c~0d", "in", "[1]", "1", True),
        ('{"\\u001b":["\\u001b"]}', '{"\\u001b":"\\u202e"}', "/\\u001b", "in", '["\\u001b"]', '"\\u202e"', False),
        ('{"\\ud83d":["x"]}', '{"\\ud83d":"\\ude00"}', "/\\ud83d", "in", '["x"]', '"\\ude00"', False),
        ('{"a":["é😀"]}', '{"a":"é😀"}', "/a", "in", '["é😀"]', '"é😀"', True),
        ('{"a":["\\"\\\\"]}', '{"a":"\\u007f\\n"}', "/a", "in", '["\\"\\\\"]', '"\\u007f\\n"', False),
    ],
    ids=shortened,
)
def test_explanation_has_the_value_and_the_result_of_a_condition(
    filter_text, payload_text, pointer, operator, expected, actual, held
):
    explanation = explain(filter_text, payload_text)

    assert explanation.matched is held
    assert only_outcome(explanation) == ConditionOutcome(
        pointer=pointer, operator=operator, expected=expected, actual=actual, held=held
    )


@pytest.mark.parametrize(
    ("filter_text", "payload_text", "pointer", "no_object_at"),
    [
        ('{"a":{"b":[1]}}', "{}", "/a/b", "/a"),
        ('{"a":{"b":{"exists":false}}}', "{}", "/a/b", "/a"),
        ('{"a":{"b":{"not_in":[1]}}}', '{"a":null}', "/a/b", "/a"),
        ('{"a":{"b":{"c":[1]}}}', '{"a":{"b":[1,2]}}', "/a/b/c", "/a/b"),
        ('{"a":{"b":{"c":[1]}}}', '{"a":[{"b":[]}]}', "/a/0/b/c", "/a/0/b"),
        ('{"a":{"b":{"c":[1]}}}', '{"b":1}', "/a/b/c", "/a"),
        ('{"a":{"exists":false}}', "1", "/a", ""),
        ('{"a":{"exists":false}}', "[]", "/a", ""),
    ],
)
def test_explanation_points_to_a_value_that_is_not_an_object(filter_text, payload_text, pointer, no_object_at):
    outcome = only_outcome(explain(filter_text, payload_text))

    assert (outcome.pointer, outcome.actual, outcome.held) == (pointer, "missing", False)
    assert outcome.no_object_at == no_object_at


def test_explanation_of_the_empty_filter_has_no_conditions():
    assert explain("{}", "1") == Explanation(matched=True, conditions=())


def test_conditions_are_explained_in_the_order_of_the_filter():
    explanation = explain('{"a":[1],"b":{"exists":true,"not_in":[2]},"c":{"d":[3]}}', '{"a":1,"b":2,"c":{"d":3}}')

    assert [(outcome.pointer, outcome.operator, outcome.held) for outcome in explanation.conditions] == [
        ("/a", "in", True),
        ("/b", "exists", True),
        ("/b", "not_in", False),
        ("/c/d", "in", True),
    ]
    assert not explanation.matched


def test_explanation_has_the_closest_object_if_none_in_an_array_matches():
    explanation = explain('{"a":{"b":[1],"c":[2]}}', '{"a":[{},{"b":1},{"c":2}]}')

    assert [(outcome.pointer, outcome.held) for outcome in explanation.conditions] == [
        ("/a/1/b", True),
        ("/a/1/c", False),
    ]


def test_match_is_found_anywhere_and_closest_object_near_the_start():
    preceding = ",".join(["{}"] * CLOSEST_OBJECTS_MAX)

    closest = explain('{"a":{"b":[1],"c":[2]}}', f'{{"a":[{preceding},{{"b":1}}]}}')
    matching = explain('{"a":{"b":[1]}}', f'{{"a":[{preceding},{{"b":1}}]}}')

    assert closest.conditions[0].pointer == "/a/0/b"
    assert matching.conditions[0].pointer == f"/a/{CLOSEST_OBJECTS_MAX}/b"


@pytest.mark.parametrize(
    "value",
    [
        '"' + "x" * 5_000 + '"',
        '"' + "\\u0000" * 5_000 + '"',
        "9" * 5_000,
        "0." + "3" * 5_000,
        "[" + "1," * 5_000 + "1]",
        '["' + "x" * 5_000 + '"]',
        "1e" + "9" * 5_000,
    ],
    ids=shortened,
)
def test_explanation_truncates_long_values(value):
    outcome = only_outcome(explain('{"a":["x"]}', f'{{"a":{value}}}'))

    assert len(outcome.actual) == SHOWN_CHARACTERS_MAX
    assert outcome.actual.rstrip("]").endswith("…")


def test_explanation_is_printable_whatever_the_payload_contains():
    outcome = only_outcome(explain('{"\\udc00":["\\ud800\\u0000"]}', '{"\\udc00":["\\udfff","\\u009b"]}'))

    for text in (outcome.pointer, outcome.expected, outcome.actual):
        assert text.isprintable()
        assert text.encode("utf-8")


@pytest.mark.parametrize(
    "filter_text", [*ACCEPTED, '{"a":[1e400,0.10,"é\\ud83d",null,true,1e99999999999999999999]}'], ids=shortened
)
def test_stored_filter_is_the_same_when_it_is_read_again(filter_text):
    original = compiled(filter_text)

    read_again = compiled(original.source_json)

    assert original.source_json.isascii()
    assert read_again == original
    assert read_again.source == original.source


def test_python_numbers_are_stored_as_json():
    assert (
        exact_json({"a": [0.1, 1e22, 1, True, None, 10**5_000]}) == '{"a":[0.1,1E+22,1,true,null,1' + "0" * 5_000 + "]}"
    )


@pytest.mark.parametrize(
    ("filter_text", "payload_text"),
    [
        ('{"a": ["matching"]}', r'{"a": "\u006datching"}'),
        ('{"a": ["a/b"]}', r'{"a": "a\/b"}'),
        (r'{"a": ["say \"hi\""]}', r'{"a": "say \"hi\""}'),
        (r'{"a": ["two\nlines"]}', r'{"a": "two\nlines"}'),
        ('{"a": ["grüße"]}', r'{"a": "gr\u00fc\u00dfe"}'),
        ('{"a": ["grüße"]}', '{"a": "grüße"}'),
        ('{"a": ["😀"]}', r'{"a": "\ud83d\ude00"}'),
        (r'{"a": ["\ud83d"]}', r'{"a": "\ud83d"}'),
        ('{"a": [""]}', '{"a": ""}'),
        ('{"a": ["x", 7]}', '{"a": 7}'),
        ('{"a": {"b": ["x"]}, "c": {"not_in": ["y"]}}', '{"a": [{"b": "x"}]}'),
    ],
)
def test_string_matches_however_the_sender_escapes_it(filter_text, payload_text):
    assert matches(filter_text, payload_text)


def test_body_without_a_required_string_is_not_decoded():
    body = payload('{"action": "closed"}')

    assert not compiled('{"action": ["opened"]}').matches(body)

    assert not hasattr(body, "_value")


def repeated(unit: str, size: int = 262_000) -> str:
    return "[" + ",".join([unit] * (size // (len(unit) + 1))) + "]"


def deep_arrays(levels: int, width: int) -> str:
    text = '{"a":0}'
    for level in range(levels - 1):
        text = '{"a":[' + ",".join([text] * (width if level < 7 else 1)) + "]}"
    return text


MANY_ABSENT_FIELDS = ",".join(f'"f{number}":{{"not_in":[1]}}' for number in range(63))
EXPENSIVE_PAIRS = {
    "one field, many scalars": ('{"a":{"in":["x",5,1.5],"not_in":["z"]}}', f'{{"a":{repeated("0")}}}'),
    "one field, many decimals": ('{"a":{"in":["x",5,1.25],"not_in":["z"]}}', f'{{"a":{repeated("1.5")}}}'),
    "numbers with the same hash": (
        '{"a":[' + ",".join(str(1 + n * (2**61 - 1)) for n in range(32)) + "]}",
        '{"a":[' + ",".join(str(1 + n * (2**61 - 1)) for n in range(32, 10_000)) + "]}",
    ),
    "many small objects against many fields": (f'{{{MANY_ABSENT_FIELDS},"z":[2]}}', repeated('{"z":1}')),
    "many empty objects against many fields": (f'{{{MANY_ABSENT_FIELDS},"z":[2]}}', repeated("{}")),
    "many objects with all required fields but one": (
        fields(64),
        repeated("{" + ",".join(f'"f{number}":1' for number in range(63)) + "}"),
    ),
    "ten levels of arrays": (nested(10, "[1]"), deep_arrays(10, 4)),
    "arrays in arrays in arrays": (nested(10, "[1]"), repeated('[[{"a":[{"a":1}]}]]')),
    "a body that is an array of arrays": (nested(10, "[1]"), "[" * 500 + '{"a":1}' + "]" * 500),
}


@pytest.mark.parametrize(("filter_text", "payload_text"), EXPENSIVE_PAIRS.values(), ids=EXPENSIVE_PAIRS.keys())
def test_expensive_pairs_are_evaluated_and_explained_in_linear_time(filter_text, payload_text):
    expensive_filter, body = compiled(filter_text), payload(payload_text)
    assert len(payload_text) <= 262_144
    assert body.value
    started = time.thread_time()

    matched = expensive_filter.matches(body)
    explanation = expensive_filter.explain(body)

    # Milliseconds on an idle machine. If each level multiplied the work, it would take minutes or longer.
    assert time.thread_time() - started < 3
    assert matched is explanation.matched is False


@given(filter_texts, payload_texts)
def test_evaluation_agrees_with_the_reference_evaluator(filter_text, payload_text):
    expected = body_matches(value_with_fractions(filter_text), value_with_fractions(payload_text))

    assert matches(filter_text, payload_text) is expected


@given(filter_texts, payload_texts)
def test_explanation_agrees_with_the_evaluation(filter_text, payload_text):
    explanation = explain(filter_text, payload_text)

    assert explanation.matched is matches(filter_text, payload_text)
    assert explanation.matched is all(outcome.held for outcome in explanation.conditions)


@given(filter_texts, payload_texts)
def test_explanation_has_an_outcome_for_every_condition(filter_text, payload_text):
    def count_in_field(source: Any) -> int:
        if isinstance(source, list):
            return 1
        if not any(name.startswith("$") or name in OPERATORS_WITHOUT_DOLLAR for name in source):
            return count_in_fields(source)
        return sum(count_in_fields(operand) if name == "$fields" else 1 for name, operand in source.items())

    def count_in_fields(source: dict[str, Any]) -> int:
        return sum(map(count_in_field, source.values()))

    source = value_with_fractions(filter_text)
    count = 1 if source.keys() & {"$any", "$not"} else count_in_fields(source.get("$fields", source))

    assert len(explain(filter_text, payload_text).conditions) == count


@given(filter_texts, payload_texts)
def test_stored_filter_matches_the_same_payloads(filter_text, payload_text):
    stored = compiled(filter_text).source_json

    assert compiled(stored) == compiled(filter_text)
    assert matches(stored, payload_text) is matches(filter_text, payload_text)


any_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.decimals(), st.text(max_size=5), st.binary(max_size=3)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from([*NAMES, *OPERATORS, "notIn", "$in"]) | st.integers() | st.none(), inner, max_size=4
        ),
    ),
    max_leaves=25,
)


@given(any_values | st.dictionaries(st.sampled_from([*NAMES, *OPERATORS]), any_values, max_size=4), payload_texts)
def test_any_source_compiles_or_has_problems(source, payload_text):
    result = compile_filter(source)

    if isinstance(result, CompiledFilter):
        assert isinstance(result.matches(payload(payload_text)), bool)
        assert compiled(result.source_json) == result
    else:
        assert result
        assert all(problem.message for problem in result)

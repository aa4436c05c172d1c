"""Which values each operator matches, which operands it refuses, and properties of all operators."""

import itertools
import time
from typing import Any

import pytest
from hypothesis import given

from hookmill.domain.filters import (
    ALTERNATIVES_MAX,
    CONDITIONS_MAX,
    CONDITIONS_PER_FIELD_MAX,
    CONTRACT_OPERATORS,
    DEPTH_MAX,
    OPERATORS,
    PATTERN_CHARACTERS_MAX,
    CompiledFilter,
    ConditionOutcome,
    compile_filter,
)
from tests.domain.filter_reference import (
    VALUE_OPERANDS,
    compiled,
    explain,
    filter_texts,
    matches,
    payload,
    payload_texts,
    problems,
    shortened,
)


def test_property_tests_draw_every_operator():
    assert {*VALUE_OPERANDS, "$any", "$not", "$fields"} == {*OPERATORS}


CASES: dict[str, list[tuple[str, str, bool]]] = {
    "$prefix": [
        ('{"a":{"$prefix":"re"}}', '{"a":"release"}', True),
        ('{"a":{"$prefix":"re"}}', '{"a":"re"}', True),
        ('{"a":{"$prefix":"re"}}', '{"a":"r"}', False),
        ('{"a":{"$prefix":"re"}}', '{"a":"Release"}', False),
        ('{"a":{"$prefix":"re"}}', '{"a":"pre"}', False),
        ('{"a":{"$prefix":"re"}}', '{"a":"\\u0072\\u0065lease"}', True),
        ('{"a":{"$prefix":"refs/"}}', '{"a":"refs\\/heads"}', True),
        ('{"a":{"$prefix":"grü"}}', '{"a":"grüße"}', True),
        ('{"a":{"$prefix":"grü"}}', '{"a":"gru\\u0308ße"}', False),
        ('{"a":{"$prefix":"😀"}}', '{"a":"\\ud83d\\ude00!"}', True),
        ('{"a":{"$prefix":"\\ud83d"}}', '{"a":"😀"}', False),
        ('{"a":{"$prefix":"*"}}', '{"a":"x"}', False),
        ('{"a":{"$prefix":"1"}}', '{"a":12}', False),
        ('{"a":{"$prefix":"re"}}', "{}", False),
        ('{"a":{"$prefix":"re"}}', '{"a":null}', False),
        ('{"a":{"$prefix":"re"}}', '{"a":{"re":"re"}}', False),
        ('{"a":{"$prefix":"re"}}', '{"a":[]}', False),
        ('{"a":{"$prefix":"re"}}', '{"a":["x",null,"re"]}', True),
        ('{"a":{"$prefix":"re"}}', '{"a":["x",["re"],{"re":"re"}]}', False),
        ('{"a":{"b":{"$prefix":"re"}}}', '{"a":[{"b":"x"},{"b":"red"}]}', True),
        ('{"a":{"b":{"$prefix":"re"}}}', '{"a":[]}', False),
        ('{"a":{"$prefix":"r","$suffix":"e"}}', '{"a":"release"}', True),
        ('{"a":{"$prefix":"re","$suffix":"ee"}}', '{"a":"ree"}', True),
        ('{"a":{"$prefix":"r","$suffix":"e"}}', '{"a":["rx","xe"]}', True),
    ],
    "$suffix": [
        ('{"a":{"$suffix":".org"}}', '{"a":"example.org"}', True),
        ('{"a":{"$suffix":".org"}}', '{"a":".org"}', True),
        ('{"a":{"$suffix":".org"}}', '{"a":"example.org."}', False),
        ('{"a":{"$suffix":".org"}}', '{"a":"exampleXorg"}', False),
        ('{"a":{"$suffix":"/x"}}', '{"a":"a\\/x"}', True),
        ('{"a":{"$suffix":"ße"}}', '{"a":"gr\\u00fc\\u00dfe"}', True),
        ('{"a":{"$suffix":"\\ude00"}}', '{"a":"😀"}', False),
        ('{"a":{"$suffix":"x"}}', "{}", False),
        ('{"a":{"$suffix":"l"}}', '{"a":null}', False),
        ('{"a":{"$suffix":"x"}}', '{"a":["y","yx"]}', True),
        ('{"a":{"$suffix":"x"}}', '{"a":[["x"]]}', False),
        ('{"a":{"b":{"$suffix":"x"}}}', '{"a":[{"b":["y","zx"]}]}', True),
    ],
    "$glob": [
        ('{"a":{"$glob":"x"}}', '{"a":"x"}', True),
        ('{"a":{"$glob":"x"}}', '{"a":"xx"}', False),
        ('{"a":{"$glob":""}}', '{"a":""}', True),
        ('{"a":{"$glob":""}}', '{"a":"x"}', False),
        ('{"a":{"$glob":"*"}}', '{"a":""}', True),
        ('{"a":{"$glob":"*"}}', '{"a":"x\\ny"}', True),
        ('{"a":{"$glob":"*"}}', "{}", False),
        ('{"a":{"$glob":"*"}}', '{"a":null}', False),
        ('{"a":{"$glob":"*"}}', '{"a":1}', False),
        ('{"a":{"$glob":"*"}}', '{"a":[]}', False),
        ('{"a":{"$glob":"*"}}', '{"a":[1,"x"]}', True),
        ('{"a":{"$glob":"*"}}', '{"a":{"x":"x"}}', False),
        ('{"a":{"$glob":"release-*"}}', '{"a":"release-1.2"}', True),
        ('{"a":{"$glob":"release-*"}}', '{"a":"prerelease-1.2"}', False),
        ('{"a":{"$glob":"*.py"}}', '{"a":["README.md","a.py"]}', True),
        ('{"a":{"$glob":"*.py"}}', '{"a":"a.pyc"}', False),
        ('{"a":{"$glob":"?"}}', '{"a":"😀"}', True),
        ('{"a":{"$glob":"??"}}', '{"a":"😀"}', False),
        ('{"a":{"$glob":"?"}}', '{"a":""}', False),
        ('{"a":{"$glob":"?x?"}}', '{"a":"axb"}', True),
        ('{"a":{"$glob":"a*a"}}', '{"a":"a"}', False),
        ('{"a":{"$glob":"a*b*c"}}', '{"a":"aXbXbXc"}', True),
        ('{"a":{"$glob":"*a?c*"}}', '{"a":"xxabXabc"}', True),
        ('{"a":{"$glob":"*a?c*"}}', '{"a":"xxabXab"}', False),
        ('{"a":{"$glob":"\\\\*"}}', '{"a":"*"}', True),
        ('{"a":{"$glob":"\\\\*"}}', '{"a":"x"}', False),
        ('{"a":{"$glob":"\\\\?\\\\\\\\*"}}', '{"a":"?\\\\rest"}', True),
        ('{"a":{"$glob":"[ab]"}}', '{"a":"a"}', False),
        ('{"a":{"$glob":"[ab]"}}', '{"a":"[ab]"}', True),
        ('{"a":{"$glob":".+"}}', '{"a":"xx"}', False),
        ('{"a":{"$glob":"re*"}}', '{"a":"\\u0072elease"}', True),
        ('{"a":{"$glob":"re*"}}', '{"a":"Release"}', False),
        ('{"a":{"b":{"$glob":"re*"}}}', '{"a":[{"b":1},{"b":"red"}]}', True),
    ],
    "$gt": [
        ('{"a":{"$gt":1}}', '{"a":2}', True),
        ('{"a":{"$gt":1}}', '{"a":1.0}', False),
        ('{"a":{"$gt":1}}', '{"a":1.0000000000000000000001}', True),
        ('{"a":{"$gt":1}}', '{"a":"2"}', False),
        ('{"a":{"$gt":0}}', '{"a":true}', False),
        ('{"a":{"$gt":-1}}', '{"a":null}', False),
        ('{"a":{"$gt":-1}}', '{"a":false}', False),
        ('{"a":{"$gt":1}}', "{}", False),
        ('{"a":{"$gt":1}}', '{"a":[]}', False),
        ('{"a":{"$gt":1}}', '{"a":[0,"9",2]}', True),
        ('{"a":{"$gt":1}}', '{"a":[[2],{"a":2}]}', False),
        ('{"a":{"$gt":1}}', '{"a":{"a":2}}', False),
        ('{"a":{"b":{"$gt":1}}}', '{"a":[{"b":0},{"b":2}]}', True),
        ('{"a":{"$gt":1,"$lt":2}}', '{"a":1.5}', True),
        ('{"a":{"$gt":1,"$lt":2}}', '{"a":2}', False),
        ('{"a":{"$gt":5,"$lt":3}}', '{"a":[1,9]}', True),
        ('{"a":{"b":{"$gt":5,"$lt":8}}}', '{"a":[{"b":1},{"b":9}]}', False),
        ('{"a":{"$gt":9007199254740992}}', '{"a":9007199254740993}', True),
        ('{"a":{"$gt":9007199254740993}}', '{"a":9007199254740993.0}', False),
    ],
    "$gte": [
        ('{"a":{"$gte":1}}', '{"a":1.0}', True),
        ('{"a":{"$gte":1}}', '{"a":0.9999999999999999999999}', False),
        ('{"a":{"$gte":0}}', '{"a":-0.0}', True),
        ('{"a":{"$gte":0}}', "{}", False),
        ('{"a":{"$gte":0}}', '{"a":null}', False),
        ('{"a":{"$gte":1}}', '{"a":[0,1]}', True),
        ('{"a":{"$gte":1}}', '{"a":"1"}', False),
        ('{"a":{"b":{"$gte":1}}}', '{"a":[{"b":1}]}', True),
    ],
    "$lt": [
        ('{"a":{"$lt":1}}', '{"a":0}', True),
        ('{"a":{"$lt":1}}', '{"a":1}', False),
        ('{"a":{"$lt":1}}', '{"a":-1e400}', True),
        ('{"a":{"$lt":1}}', "{}", False),
        ('{"a":{"$lt":1}}', '{"a":null}', False),
        ('{"a":{"$lt":1}}', '{"a":[2,0]}', True),
        ('{"a":{"$lt":1}}', '{"a":[]}', False),
        ('{"a":{"b":{"$lt":1}}}', '{"a":[{"b":2},{"b":0}]}', True),
    ],
    "$lte": [
        ('{"a":{"$lte":1}}', '{"a":1e0}', True),
        ('{"a":{"$lte":1}}', '{"a":1.0000000000000000000001}', False),
        ('{"a":{"$lte":1}}', "{}", False),
        ('{"a":{"$lte":1}}', '{"a":null}', False),
        ('{"a":{"$lte":1}}', '{"a":[2,1]}', True),
        ('{"a":{"$lte":1}}', '{"a":false}', False),
        ('{"a":{"b":{"$lte":1}}}', '{"a":[{"b":[5,1]}]}', True),
    ],
    "$any": [
        ('{"a":{"$any":[["x"],{"$prefix":"y"}]}}', '{"a":"x"}', True),
        ('{"a":{"$any":[["x"],{"$prefix":"y"}]}}', '{"a":"yes"}', True),
        ('{"a":{"$any":[["x"],{"$prefix":"y"}]}}', '{"a":"z"}', False),
        ('{"a":{"$any":[["x"],{"$prefix":"y"}]}}', "{}", False),
        ('{"a":{"$any":[["x"],{"exists":false}]}}', "{}", True),
        ('{"a":{"$any":[["x"],{"exists":false}]}}', '{"a":null}', False),
        ('{"a":{"$any":[[null]]}}', '{"a":null}', True),
        ('{"a":{"$any":[{"b":[1]},[2]]}}', '{"a":{"b":1}}', True),
        ('{"a":{"$any":[{"b":[1]},[2]]}}', '{"a":2}', True),
        ('{"a":{"$any":[{"b":[1]},[2]]}}', '{"a":[{"b":2},2]}', True),
        ('{"a":{"$any":[{"b":[1]},[2]]}}', '{"a":[{"b":2},3]}', False),
        ('{"a":{"$any":[["x"],["y"]]}}', '{"a":[]}', False),
        ('{"a":{"$any":[["x"],["y"]]}}', '{"a":["z","y"]}', True),
        ('{"a":{"$any":[{"b":[1],"c":[1]},{"b":[2]}]}}', '{"a":[{"b":1},{"c":1}]}', False),
        ('{"a":{"$any":[{"b":[1],"c":[1]},{"b":[2]}]}}', '{"a":[{"b":1},{"b":2}]}', True),
        ('{"a":{"b":{"$any":[[1],[2]]}}}', '{"a":[{"b":3},{"b":2}]}', True),
        ('{"a":{"$any":[["x","y"]],"not_in":["x"]}}', '{"a":"x"}', False),
        ('{"a":{"$any":[["x","y"]],"not_in":["x"]}}', '{"a":"y"}', True),
        ('{"a":{"$any":[{"$any":[[1],[2]]},[3]]}}', '{"a":2}', True),
        ('{"$any":[{"a":[1]},{"b":[2]}]}', '{"b":2}', True),
        ('{"$any":[{"a":[1]},{"b":[2]}]}', '{"a":2,"b":1}', False),
        ('{"$any":[{"a":[1]},{"b":[2]}]}', '[0,{"b":2}]', True),
        ('{"$any":[{"a":[1]},{"b":[2]}]}', "2", False),
        ('{"$any":[{"in":["x"]}]}', '{"in":"x"}', True),
        ('{"$any":[{"a":["opened"]},{"$not":{"b":["x"]}}]}', '{"b":"y"}', True),
    ],
    "$not": [
        ('{"a":{"$not":["x"]}}', '{"a":"y"}', True),
        ('{"a":{"$not":["x"]}}', '{"a":"x"}', False),
        ('{"a":{"$not":["x"]}}', "{}", True),
        ('{"a":{"$not":["x"]}}', '{"a":null}', True),
        ('{"a":{"$not":[null]}}', '{"a":null}', False),
        ('{"a":{"$not":{"$prefix":"x"}}}', '{"a":"y"}', True),
        ('{"a":{"$not":{"$prefix":"x"}}}', '{"a":5}', True),
        ('{"a":{"$not":{"$prefix":"x"}}}', "{}", True),
        ('{"a":{"$not":{"$prefix":"x"}}}', '{"a":["y","xy"]}', False),
        ('{"a":{"$not":{"$prefix":"x"}}}', '{"a":[]}', True),
        ('{"a":{"$not":{"$gt":5}}}', '{"a":5}', True),
        ('{"a":{"$not":{"$gt":5}}}', '{"a":[1,6]}', False),
        ('{"a":{"exists":true,"$not":{"$gt":5}}}', "{}", False),
        ('{"a":{"exists":true,"$not":{"$gt":5}}}', '{"a":"x"}', True),
        ('{"a":{"$not":{"$gt":1,"$lt":5}}}', '{"a":3}', False),
        ('{"a":{"$not":{"$gt":1,"$lt":5}}}', '{"a":7}', True),
        ('{"a":{"$not":{"exists":true}}}', "{}", True),
        ('{"a":{"$not":{"exists":true}}}', '{"a":null}', False),
        ('{"a":{"$not":{"b":[1]}}}', "{}", True),
        ('{"a":{"$not":{"b":[1]}}}', '{"a":5}', True),
        ('{"a":{"$not":{"b":[1]}}}', '{"a":{"b":2}}', True),
        ('{"a":{"$not":{"b":[1]}}}', '{"a":{"b":1}}', False),
        ('{"a":{"$not":{"b":[1]}}}', '{"a":[{"b":2},{"b":3}]}', True),
        ('{"a":{"$not":{"b":[1]}}}', '{"a":[{"b":2},{"b":1}]}', False),
        ('{"a":{"b":{"$not":[1]}}}', "{}", False),
        ('{"a":{"b":{"$not":[1]}}}', '{"a":[{"b":1},{"b":2}]}', True),
        ('{"a":{"$not":{"$not":["x"]}}}', '{"a":"x"}', True),
        ('{"a":{"$not":{"$any":[["x"],["y"]]}}}', '{"a":"y"}', False),
        ('{"a":{"$not":{"$any":[["x"],["y"]]}}}', '{"a":"z"}', True),
        ('{"$not":{"a":["x"]}}', '{"a":"y"}', True),
        ('{"$not":{"a":["x"]}}', '{"a":"x"}', False),
        ('{"$not":{"a":["x"]}}', '[{"a":"y"},{"a":"x"}]', False),
        ('{"$not":{"a":["x"]}}', "5", True),
        ('{"$not":{"a":["x"],"b":["y"]}}', '{"a":"x"}', True),
        ('{"$not":{"not_in":["x"]}}', '{"not_in":"x"}', False),
    ],
    "$fields": [
        ('{"$fields":{"$ref":["x"]}}', '{"$ref":"x"}', True),
        ('{"$fields":{"$ref":["x"]}}', '{"$ref":"y"}', False),
        ('{"$fields":{"$ref":["x"]}}', '[{"$ref":"x"}]', True),
        ('{"$fields":{"$ref":["x"]}}', '"x"', False),
        ('{"$fields":{"$fields":["x"]}}', '{"$fields":"x"}', True),
        ('{"$fields":{"in":["x"],"a":[1]}}', '{"in":"x","a":1}', True),
        ('{"a":{"$fields":{"in":["x"]}}}', '{"a":{"in":"x"}}', True),
        ('{"a":{"$fields":{"in":["x"]}}}', '{"a":"x"}', False),
        ('{"a":{"$fields":{"in":["x"]}}}', '{"a":{"$fields":{"in":"x"}}}', False),
        ('{"a":{"$fields":{"exists":[true]}}}', '{"a":{"exists":true}}', True),
        ('{"a":{"$fields":{"$gt":{"$gt":5}}}}', '{"a":{"$gt":6}}', True),
        ('{"a":{"$fields":{"$fields":{"$fields":{"$x":[1]}}}}}', '{"a":{"$fields":{"$x":1}}}', True),
        ('{"a":{"$fields":{"notIn":["x"]}}}', '{"a":{"notIn":"x"}}', True),
        ('{"a":{"$fields":{"b":[1],"$c":[2]}}}', '{"a":[{"b":1},{"$c":2}]}', False),
        ('{"a":{"$fields":{"b":[1],"$c":[2]}}}', '{"a":[{"b":1,"$c":2}]}', True),
        ('{"a":{"$fields":{"b":{"exists":false}}}}', "{}", False),
        ('{"a":{"$fields":{"b":{"exists":false}}}}', '{"a":{}}', True),
        ('{"a":{"$fields":{"b":{"exists":false}}}}', '{"a":null}', False),
        ('{"a":{"exists":true,"$fields":{"b":[1]}}}', '{"a":{"b":1}}', True),
        ('{"a":{"$fields":{"b":[1]},"$not":{"c":[1]}}}', '{"a":{"b":1,"c":1}}', False),
        ('{"$fields":{"action":["x"]},"$not":{"draft":[true]}}', '{"action":"x","draft":false}', True),
        ('{"$fields":{"action":["x"]},"$not":{"draft":[true]}}', '{"action":"x","draft":true}', False),
        ('{"$fields":{"action":["x"]},"$any":[{"a":[1]},{"b":[1]}]}', '{"action":"x","b":1}', True),
    ],
}


def test_every_operator_has_cases():
    assert {*CASES, *CONTRACT_OPERATORS} == {*OPERATORS}


def test_operator_matches_these_payloads_and_no_others(subtests):
    for filter_text, payload_text, expected in itertools.chain.from_iterable(CASES.values()):
        with subtests.test(filter_text=filter_text, payload_text=payload_text):
            assert matches(filter_text, payload_text) is expected


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
def test_example_of_an_operator_can_be_saved_and_contains_it(operator):
    assert f'"{operator.name}"' in operator.example
    assert compiled(operator.example).source == payload(operator.example).value


def test_only_operators_of_the_contract_have_no_dollar_sign():
    assert [name for name in OPERATORS if not name.startswith("$")] == [*CONTRACT_OPERATORS]
    assert [name for name, operator in OPERATORS.items() if operator.is_of_contract] == [*CONTRACT_OPERATORS]


# Numbers in ascending order. Each line contains spellings of one value.
ASCENDING_NUMBERS = [
    ["-1e99999999999999999999", "-10e99999999999999999998"],
    ["-9.9e99999999999999999998"],
    ["-1e999999999"],
    ["-" + "9" * 5_000, "-" + "9" * 5_000 + ".0"],
    ["-" + "9" * 4_999 + "8"],
    ["-1.5", "-15e-1"],
    ["-1.05"],
    ["-1", "-1.0"],
    ["-1e-400"],
    ["-1e-99999999999999999999"],
    ["0", "-0.0", "0e99999999999999999999"],
    ["1e-99999999999999999999"],
    ["2e-99999999999999999999"],
    ["1e-400"],
    ["0.1", "1e-1"],
    ["0.1000000000000000055511151231257827"],
    ["1", "1.0", "10e-1"],
    ["1.0" + "0" * 5_000 + "1"],
    ["1.05"],
    ["9007199254740992", "9007199254740992.0"],
    ["9007199254740993", "9.007199254740993e15"],
    ["18446744073709551616", "18446744073709551616.0"],
    ["18446744073709551617"],
    ["1e400", "1" + "0" * 400],
    ["9" * 5_000, "0." + "9" * 5_000 + "e5000"],
    ["1e999999999"],
    ["9.9e99999999999999999998"],
    ["1e99999999999999999999", "0.1e100000000000000000000"],
    ["1.5e99999999999999999999"],
]


@pytest.mark.parametrize("limit", range(len(ASCENDING_NUMBERS)), ids=lambda line: shortened(ASCENDING_NUMBERS[line][0]))
def test_numbers_are_compared_by_exact_value_in_every_spelling(limit):
    for operand in ASCENDING_NUMBERS[limit]:
        filters = {name: compiled(f'{{"a":{{"{name}":{operand}}}}}') for name in ("$gt", "$gte", "$lt", "$lte")}
        for other, spellings in enumerate(ASCENDING_NUMBERS):
            for spelling in spellings:
                body = payload(f'{{"a":[{spelling}]}}')
                held = {name for name, each in filters.items() if each.matches(body)}
                expected = {"$gt", "$gte"} if other > limit else {"$lt", "$lte"} if other < limit else {"$gte", "$lte"}
                assert held == expected, (shortened(operand), shortened(spelling))


def test_python_float_is_compared_by_its_shortest_decimal_form():
    float_filter = compile_filter({"a": {"$gt": 0.1}})

    assert isinstance(float_filter, CompiledFilter)
    assert not float_filter.matches(payload('{"a":0.1}'))
    assert float_filter.matches(payload('{"a":0.1000000000000000055511151231257827}'))


def nested(depth: int, inner: str) -> str:
    return '{"$not":' * depth + inner + "}" * depth


MOST_ALTERNATIVES = ",".join("[1]" for _ in range(ALTERNATIVES_MAX))
REFUSED: list[tuple[str, str, str]] = [
    # unknown operators, and the suggestion in the message
    ('{"a":{"$regex":"x"}}', "/a/$regex", "Unknown operator."),
    ('{"a":{"$prefx":"x"}}', "/a/$prefx", "Did you mean `$prefix`?"),
    ('{"a":{"$GT":5}}', "/a/$GT", "Did you mean `$gt`?"),
    ('{"a":{"$in":["x"]}}', "/a/$in", "Did you mean `in`?"),
    ('{"a":{"$notIn":["x"]}}', "/a/$notIn", "Did you mean `not_in`?"),
    ('{"a":{"$ref":["x"]}}', "/a/$ref", 'write {"$fields": {"$ref": …}}'),
    ('{"$schema":["x"]}', "/$schema", 'write {"$fields": {"$schema": …}}'),
    ('{"$schema":["x"]}', "/$schema", "Operators allowed here are $any, $not, $fields."),
    ('{"$an":["x"]}', "/$an", "Did you mean `$any`?"),
    ('{"$":["x"]}', "/$", "Unknown operator."),
    ('{"a":{"$~/":["x"]}}', "/a/$~0~1", "Unknown operator."),
    ('{"a":{"notIn":["x"]}}', "/a/notIn", 'write {"$fields": {"notIn": …}}'),
    ('{"a":{"prefix":"x"}}', "/a/prefix", "For the operator write `$prefix`."),
    # operators for one field, at the top level
    ('{"$gt":5}', "/$gt", "applies to one field"),
    ('{"$prefix":["x"]}', "/$prefix", 'write {"$fields": {"$prefix": …}}'),
    # operators and fields in one object
    ('{"a":[1],"$not":{"b":[1]}}', "", "put the fields into"),
    ('{"a":{"b":[1],"$gt":5}}', "/a", '`$gt` is an operator and "b" is a field.'),
    ('{"a":{"b":[1],"$fields":{"in":[1]}}}', "/a", "put the fields into"),
    ('{"in":["x"],"$any":[{"a":[1]}]}', "", '`$any` is an operator and "in" is a field.'),
    # strings
    ('{"a":{"$prefix":""}}', "/a/$prefix", "one or more characters"),
    ('{"a":{"$prefix":5}}', "/a/$prefix", "Write a string"),
    ('{"a":{"$prefix":["x"]}}', "/a/$prefix", 'write {"$fields": {"$prefix": …}}'),
    ('{"a":{"$suffix":null}}', "/a/$suffix", "Write a string"),
    ('{"a":{"$glob":1}}', "/a/$glob", "Write a string"),
    ('{"a":{"$glob":"a\\\\b"}}', "/a/$glob", "backslash"),
    ('{"a":{"$glob":"a\\\\"}}', "/a/$glob", "backslash"),
    (f'{{"a":{{"$glob":"{"x" * (PATTERN_CHARACTERS_MAX + 1)}"}}}}', "/a/$glob", "Keep to 500 or fewer."),
    # numbers
    ('{"a":{"$gt":"5"}}', "/a/$gt", "Write a finite number"),
    ('{"a":{"$gte":true}}', "/a/$gte", "Write a finite number"),
    ('{"a":{"$lt":null}}', "/a/$lt", "Write a finite number"),
    ('{"a":{"$lte":[5]}}', "/a/$lte", 'write {"$fields": {"$lte": …}}'),
    # alternatives
    ('{"a":{"$any":[]}}', "/a/$any", "array of alternatives"),
    ('{"a":{"$any":{"b":[1]}}}', "/a/$any", 'write {"$fields": {"$any": …}}'),
    ('{"a":{"$any":["x"]}}', "/a/$any/0", 'write {"$fields": {"$any": …}}'),
    ('{"a":{"$any":[["x"],{}]}}', "/a/$any/1", "contains no condition"),
    ('{"a":{"$any":[{"b":{"$x":1}}]}}', "/a/$any/0/b/$x", "Unknown operator."),
    (f'{{"a":{{"$any":[{MOST_ALTERNATIVES},[1]]}}}}', "/a/$any", f"{ALTERNATIVES_MAX + 1} alternatives in one array."),
    ('{"$any":[["x"]]}', "/$any/0", "A filter is an object"),
    ('{"$any":[{}]}', "/$any/0", "contains no condition"),
    # negation
    ('{"a":{"$not":"x"}}', "/a/$not", "Write the values as an array"),
    ('{"a":{"$not":{}}}', "/a/$not", "contains no condition"),
    ('{"$not":{}}', "/$not", "contains no condition"),
    ('{"$not":["x"]}', "/$not", "A filter is an object"),
    # fields
    ('{"$fields":{}}', "/$fields", "an object of one or more fields"),
    ('{"a":{"$fields":["x"]}}', "/a/$fields", 'write {"$fields": {"$fields": …}}'),
    ('{"a":{"$fields":{"in":"x"}}}', "/a/$fields/in", "Write the values as an array"),
    # contradictions
    ('{"a":{"exists":false,"$gt":5}}', "/a/exists", "`$gt` fails for an absent field."),
    ('{"a":{"exists":false,"$fields":{"b":[1]}}}', "/a/exists", "`$fields` fails for an absent field."),
    # size
    (nested(DEPTH_MAX + 1, '{"a":[1]}'), "/$not" * (DEPTH_MAX + 1), "at most 10 levels"),
    (nested(DEPTH_MAX, '{"a":[1]}'), "/$not" * DEPTH_MAX + "/a", "at most 10 levels"),
]


def test_every_operator_of_this_project_has_a_refused_operand():
    refused = {pointer.rpartition("/")[2] for _, pointer, _ in REFUSED}

    assert {*OPERATORS} - {*CONTRACT_OPERATORS} <= refused


@pytest.mark.parametrize(("filter_text", "pointer", "message_part"), REFUSED, ids=shortened)
def test_invalid_operand_is_refused_with_its_pointer(filter_text, pointer, message_part):
    [problem] = problems(payload(filter_text).value)

    assert problem.pointer == pointer
    assert message_part in problem.message
    assert problem.message.endswith(".")
    assert len(problem.message) < 400


@pytest.mark.parametrize(
    "filter_text",
    [
        nested(DEPTH_MAX - 1, '{"a":[1]}'),
        '{"a":' + nested(DEPTH_MAX - 1, "[1]") + "}",
        f'{{"a":{{"$any":[{MOST_ALTERNATIVES}]}}}}',
        f'{{"a":{{"$glob":"{"?" * PATTERN_CHARACTERS_MAX}"}}}}',
        '{"a":{"exists":false,"$not":{"$gt":5}}}',
        '{"a":{"exists":false,"$any":[{"exists":false},[1]]}}',
    ],
    ids=shortened,
)
def test_filter_with_operators_at_the_limits_can_be_saved(filter_text):
    assert compiled(filter_text).source == payload(filter_text).value


def test_alternatives_count_as_conditions_in_addition_to_any():
    alternatives = ",".join(["[1]"] * 7)
    full = ",".join(f'"{name}":{{"$any":[{alternatives}]}}' for name in range(8))

    assert isinstance(compile_filter(payload(f"{{{full}}}").value), CompiledFilter)
    [problem] = problems(payload(f'{{{full},"c":{{"$prefix":"x"}}}}').value)
    assert f"more than {CONDITIONS_MAX} conditions" in problem.message


@pytest.mark.parametrize(
    ("at_limit", "above_limit", "pointer", "target"),
    [
        (
            '{"a":{"$not":{"$prefix":"x"},"$any":[' + ",".join(["[1]"] * (CONDITIONS_PER_FIELD_MAX - 1)) + "]}}",
            '{"a":{"$prefix":"x","$not":{"$prefix":"x"},"$any":['
            + ",".join(["[1]"] * (CONDITIONS_PER_FIELD_MAX - 1))
            + "]}}",
            "/a/$any/8",
            'field "a"',
        ),
        (
            '{"$any":[' + ",".join(['{"a":{"b":[1]}}'] * (CONDITIONS_PER_FIELD_MAX - 1)) + '],"$not":{"b":[1]}}',
            '{"$any":[' + ",".join(['{"a":{"b":[1]}}'] * CONDITIONS_PER_FIELD_MAX) + '],"$not":{"b":[1]}}',
            "/$not",
            "body",
        ),
    ],
    ids=shortened,
)
def test_conditions_on_one_field_are_limited(at_limit, above_limit, pointer, target):
    assert isinstance(compile_filter(payload(at_limit).value), CompiledFilter)
    [problem] = problems(payload(above_limit).value)
    assert (problem.pointer, problem.message) == (
        pointer,
        f"More than {CONDITIONS_PER_FIELD_MAX} conditions on the {target}. Use several triggers instead of one.",
    )


def test_fields_operator_counts_neither_as_a_condition_nor_as_a_level():
    deep = '{"$fields":{"$a":' * DEPTH_MAX + "[1]" + "}}" * DEPTH_MAX
    wide = '{"$fields":{' + ",".join(f'"${n}":[1]' for n in range(CONDITIONS_MAX)) + "}}"

    assert compiled(deep).matches(payload('{"$a":' * DEPTH_MAX + "1" + "}" * DEPTH_MAX))
    assert len(explain(wide, "{}").conditions) == CONDITIONS_MAX


@pytest.mark.parametrize(
    ("filter_text", "pointers"),
    [
        ('{"a":{"in":[1],"not_in":[2],"exists":true}}', ()),
        ('{"in":["x"],"gt":{"prefix":["x"]}}', ()),
        ('{"a":{"$prefix":"x"},"b":[1]}', ("/a/$prefix",)),
        ('{"a":{"$fields":{"$x":[1]}}}', ("/a/$fields",)),
        ('{"$any":[{"a":{"$gt":1}},{"a":[1]}]}', ("/$any", "/$any/0/a/$gt")),
    ],
)
def test_filter_has_pointers_to_operators_beyond_the_contract(filter_text, pointers):
    assert compiled(filter_text).pointers_beyond_contract == pointers


# Explanations


def outcome(pointer: str, operator: str, expected: str, actual: str, held: bool, **more: Any) -> ConditionOutcome:
    return ConditionOutcome(pointer=pointer, operator=operator, expected=expected, actual=actual, held=held, **more)


@pytest.mark.parametrize(
    ("filter_text", "payload_text", "expected"),
    [
        ('{"a":{"$prefix":"x"}}', '{"a":"y"}', outcome("/a", "$prefix", '"x"', '"y"', held=False)),
        ('{"a":{"$prefix":"x"}}', '{"a":["y","xy"]}', outcome("/a/1", "$prefix", '"x"', '"xy"', held=True)),
        ('{"a":{"$gt":5}}', '{"a":[1,9]}', outcome("/a/1", "$gt", "5", "9", held=True)),
        ('{"a":{"$gt":5}}', "{}", outcome("/a", "$gt", "5", "missing", held=False)),
        (
            '{"a":{"b":{"$glob":"*"}}}',
            '{"a":1}',
            outcome("/a/b", "$glob", '"*"', "missing", held=False, no_object_at="/a"),
        ),
        ('{"a":{"$fields":{"in":[1]}}}', '{"a":{"in":1}}', outcome("/a/in", "in", "[1]", "1", held=True)),
        (
            '{"a":{"$not":{"$gt":5}}}',
            '{"a":7}',
            outcome("/a", "$not", "{…}", "7", held=False, inner_outcomes=(outcome("/a", "$gt", "5", "7", held=True),)),
        ),
        (
            '{"a":{"$any":[["x"],{"b":{"$gt":1},"c":[2]}]}}',
            '{"a":[{"b":0},{"b":3}]}',
            outcome(
                "/a",
                "$any",
                "[[…], {…}]",
                "[{…}, {…}]",
                held=False,
                inner_outcomes=(
                    outcome("/a", "in", '["x"]', "[{…}, {…}]", held=False, alternative_number=1),
                    outcome("/a/1/b", "$gt", "1", "3", held=True, alternative_number=2),
                    outcome("/a/1/c", "in", "[2]", "missing", held=False, alternative_number=2),
                ),
            ),
        ),
        (
            '{"$not":{"a":{"b":[1]}}}',
            "{}",
            outcome(
                "",
                "$not",
                "{…}",
                "{}",
                held=True,
                inner_outcomes=(outcome("/a/b", "in", "[1]", "missing", held=False, no_object_at="/a"),),
            ),
        ),
    ],
    ids=shortened,
)
def test_explanation_has_the_outcome_of_an_operator(filter_text, payload_text, expected):
    explanation = explain(filter_text, payload_text)

    assert explanation.matched is expected.held
    assert explanation.conditions == (expected,)


def follows(outcome: ConditionOutcome) -> bool:
    """Whether the outcome follows from its inner outcomes."""
    inner_outcomes = outcome.inner_outcomes
    if not all(map(follows, inner_outcomes)):
        return False
    if outcome.no_object_at is not None:
        return not outcome.held and not inner_outcomes
    if outcome.operator == "$not":
        return outcome.held is not all(each.held for each in inner_outcomes)
    if outcome.operator == "$any":
        numbers = {each.alternative_number for each in inner_outcomes}
        return outcome.held is any(
            all(each.held for each in inner_outcomes if each.alternative_number == number) for number in numbers
        )
    return not inner_outcomes


@given(filter_texts, payload_texts)
def test_every_outcome_follows_from_its_inner_outcomes(filter_text, payload_text):
    assert all(map(follows, explain(filter_text, payload_text).conditions))


# Properties


@given(payload_texts)
def test_evaluation_of_every_example_agrees_with_its_explanation(payload_text):
    for operator in OPERATORS.values():
        example = compiled(operator.example)
        assert example.rule is not None
        for name in example.source:
            body = payload(f'{{"{name}":{payload_text}}}')
            matched = example.matches(body)
            assert example.explain(body).matched is matched
            assert example.rule.holds(body.value) is matched


@given(filter_texts, payload_texts)
def test_search_for_required_strings_never_changes_the_result(filter_text, payload_text):
    drawn_filter, body = compiled(filter_text), payload(payload_text)

    assert drawn_filter.matches(body) is (drawn_filter.rule is None or drawn_filter.rule.holds(body.value))


@pytest.mark.parametrize(
    ("filter_text", "payload_text"),
    [
        ('{"action":{"$prefix":"open"}}', '{"action":"closed"}'),
        ('{"action":{"$suffix":"ed"}}', '{"action":"close"}'),
        ('{"action":{"$glob":"*pen*"}}', '{"action":"closed"}'),
        ('{"action":{"$any":[["opened"],{"$prefix":"re"}]}}', '{"action":"closed"}'),
        ('{"$any":[{"a":["x"]},{"b":["y"]}]}', '{"a":"z"}'),
        ('{"$fields":{"$type":["x"]}}', '{"$type":"z"}'),
    ],
)
def test_body_without_a_string_that_an_operator_requires_is_not_decoded(filter_text, payload_text):
    body = payload(payload_text)

    assert not compiled(filter_text).matches(body)

    assert not hasattr(body, "_value")


@pytest.mark.parametrize(
    "filter_text",
    [
        '{"a":{"$not":["x"]}}',
        '{"a":{"$not":{"$any":[["x"],["y"]]}}}',
        '{"a":{"$any":[["x"],{"exists":false}]}}',
        '{"a":{"$any":[["x"],{"not_in":["z"]}]}}',
        '{"$any":[{"a":["x"]},{"$not":{"b":["y"]}}]}',
        '{"$not":{"a":{"$prefix":"x"}}}',
    ],
)
def test_string_that_a_matching_body_can_lack_is_not_required(filter_text):
    assert matches(filter_text, '{"c":1}')


EXPENSIVE_PAIRS = {
    "a pattern that almost matches at every position": (
        f'{{"a":{{"$glob":"*{"a?" * 240}b*"}}}}',
        f'{{"a":"b{"a" * 262_000}"}}',
    ),
    "a pattern of many stars": (f'{{"a":{{"$glob":"{"a*" * 239}ba*"}}}}', f'{{"a":"aba{"a" * 262_000}"}}'),
    "many patterns on many strings": (
        '{"a":{"$any":[' + ",".join(f'{{"$glob":"*a?{n}*"}}' for n in range(9)) + "]}}",
        '{"a":[' + ",".join(['"aaaaaaaa"'] * 23_000) + "]}",
    ),
    "patterns that compare each character": (
        '{"a":{"$any":[' + ",".join(f'{{"$glob":"{"?" * 7}{n}"}}' for n in range(CONDITIONS_PER_FIELD_MAX)) + "]}}",
        '{"a":[' + ",".join(['"aaaaaaaa"'] * 23_000) + "]}",
    ),
    "many numbers against many limits": (
        '{"a":{"$any":[' + ",".join(f'{{"$gt":{10**30 + n}}}' for n in range(CONDITIONS_PER_FIELD_MAX)) + "]}}",
        '{"a":[' + ",".join(["1.5"] * 65_000) + "]}",
    ),
    "a vast limit against many digits": (
        f'{{"a":{{"$gt":{"9" * 60_000}e99999999999999999999}}}}',
        '{"a":[' + ",".join(["1.5"] * 65_000) + "]}",
    ),
    "alternatives inside alternatives": (
        '{"a":' + '{"$any":[' * 7 + '{"b":{"c":[1]}}' + ",[1]]}" * 7 + "}",
        '{"a":[' + ",".join(['{"b":[{"c":2}]}'] * 16_000) + "]}",
    ),
    "negations inside negations": (
        '{"a":' + '{"$not":' * 7 + '{"b":{"$not":[1]}}' + "}" * 7 + "}",
        '{"a":[' + ",".join(['{"b":1}'] * 32_000) + "]}",
    ),
}


@pytest.mark.parametrize(("filter_text", "payload_text"), EXPENSIVE_PAIRS.values(), ids=EXPENSIVE_PAIRS.keys())
def test_expensive_operators_are_evaluated_and_explained_in_linear_time(filter_text, payload_text):
    expensive_filter, body = compiled(filter_text), payload(payload_text)
    assert len(payload_text) <= 262_144
    assert body.value
    started = time.thread_time()

    matched = expensive_filter.matches(body)
    explanation = expensive_filter.explain(body)

    # Less than a second on an idle machine. If the work multiplied, it would take minutes or longer.
    assert time.thread_time() - started < 5
    assert matched is explanation.matched

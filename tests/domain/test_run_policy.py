"""Run policies: which fields are accepted, which payloads share a key, retries and debouncing."""

import json
import threading

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import AutomationId
from hookmill.domain.payload import Parsed, parse
from hookmill.domain.run_policy import (
    NO_POLICY,
    Concurrency,
    Debounce,
    Priority,
    Retry,
    RunPolicy,
    WhenBusy,
    policy_from_stored,
    superseded_by_debounce,
)
from hookmill.domain.spec import read
from tests.inputs.extreme_payloads import EXTREME_VALUES, payload_with


def key(payload: str, *pointers: str, automation: str = "aut_a") -> bytes | None:
    parsed = parse(payload.encode("utf-8", "surrogatepass"))
    assert isinstance(parsed, Parsed)
    return RunPolicy(concurrency=Concurrency(key=pointers)).policy_key(AutomationId(automation), parsed)


def test_policy_converts_to_json_and_back_without_change():
    policy = RunPolicy(
        concurrency=Concurrency(key=("/pull_request/number", "/a~1b"), limit=3, when_busy=WhenBusy.REPLACE),
        debounce=Debounce(seconds=30, max_seconds=90),
        retry=Retry(attempts=5, backoff_seconds=2, max_backoff_seconds=60, exit_codes=(3, 75)),
        priority=Priority.HIGH,
        max_running=7,
        pause_after_failures=4,
    )

    assert read(RunPolicy, policy.as_json()) == policy
    assert policy_from_stored(json.dumps(policy.as_json())) == policy
    assert NO_POLICY.as_json() == {}


def test_omitted_fields_have_defaults():
    policy = read(RunPolicy, {"concurrency": {}, "debounce": {"seconds": 5}})

    assert policy.concurrency == Concurrency(key=(), limit=1, when_busy=WhenBusy.QUEUE)
    assert policy.debounce == Debounce(seconds=5, max_seconds=50)
    assert read(RunPolicy, {"concurrency": {"key": "/a"}}).concurrency == Concurrency(key=("/a",))


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        ({"concurrency": []}, "/concurrency"),
        ({"concurrency": {"keys": "/a"}}, "/concurrency/keys"),
        ({"concurrency": {"key": "a"}}, "/concurrency/key"),
        ({"concurrency": {"key": ["/a"] * 5}}, "/concurrency/key"),
        ({"concurrency": {"key": ["/a", 1]}}, "/concurrency/key/1"),
        ({"concurrency": {"key": "/" + "a" * 200}}, "/concurrency/key"),
        ({"concurrency": {"limit": 0}}, "/concurrency/limit"),
        ({"concurrency": {"limit": True}}, "/concurrency/limit"),
        ({"concurrency": {"limit": 1001}}, "/concurrency/limit"),
        ({"concurrency": {"when_busy": "wait"}}, "/concurrency/when_busy"),
        ({"concurrency": {"when_busy": []}}, "/concurrency/when_busy"),
        ({"debounce": 5}, "/debounce"),
        ({"debounce": {}}, "/debounce/seconds"),
        ({"debounce": {"seconds": 1.5}}, "/debounce/seconds"),
        ({"debounce": {"seconds": 9, "max_seconds": 8}}, "/debounce/max_seconds"),
        ({"retry": {}}, "/retry/attempts"),
        ({"retry": {"attempts": 21}}, "/retry/attempts"),
        ({"retry": {"attempts": 2, "backoff_seconds": 0}}, "/retry/backoff_seconds"),
        ({"retry": {"attempts": 2, "exit_codes": [0]}}, "/retry/exit_codes/0"),
        ({"retry": {"attempts": 2, "exit_codes": 3}}, "/retry/exit_codes"),
        ({"retry": {"attempts": 2, "codes": []}}, "/retry/codes"),
        ({"priority": "urgent"}, "/priority"),
        ({"priority": 1}, "/priority"),
        ({"max_running": 0}, "/max_running"),
        ({"max_running": 1001}, "/max_running"),
        ({"max_running": "2"}, "/max_running"),
        ({"pause_after_failures": True}, "/pause_after_failures"),
        ({"pause_after_failures": 0}, "/pause_after_failures"),
    ],
)
def test_unusable_policy_is_refused_with_its_pointer(source, pointer):
    with pytest.raises(Invalid) as refused:
        read(RunPolicy, source)

    assert [fault.pointer for fault in refused.value.faults] == [pointer]


@pytest.mark.parametrize(
    "stored",
    [
        *("", "[]", "{", '{"concurrency": 5}', '{"priority": "urgent"}', '{"priority": []}', '{"retry": null, "x": 1}'),
        '{"concurrency": {"key": ' + "[" * 2_000 + "]" * 2_000 + "}}",
        '{"max_running": ' + "9" * 5_000 + "}",
    ],
)
def test_stored_policy_that_cannot_be_read_starts_no_runs(stored):
    policy = policy_from_stored(stored)

    assert "can't be read: " in (policy.reason_against_runs or "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1}', '{"a": 1.0}'),
        ('{"a": 1}', '{"a": 10e-1}'),
        ('{"a": 0}', '{"a": -0.0}'),
        ('{"a": "\\u00e9"}', '{"a": "é"}'),
        ('{"a": {"x": 1, "y": [2]}}', '{"a": {"y": [2.0], "x": 1}}'),
        ("{}", '{"b": 1}'),
        ("[]", '"text"'),
        ('{"a": 1e400000000000000000000}', '{"a": 10e399999999999999999999}'),
    ],
)
def test_payloads_with_equal_values_share_a_key(one, other):
    assert key(one, "/a") == key(other, "/a")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1}', '{"a": "1"}'),
        ('{"a": 1}', '{"a": true}'),
        ('{"a": null}', "{}"),
        ('{"a": "missing"}', "{}"),
        ('{"a": "null"}', '{"a": null}'),
        ('{"a": []}', '{"a": {}}'),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": 100}', '{"a": 1}'),
        (f'{{"a": {10**30}}}', f'{{"a": {10**30 + 1}}}'),
        ('{"a": "x"}', '{"a": "X"}'),
        ('{"a": "\\ud800"}', '{"a": "\\ud801"}'),
    ],
)
def test_payloads_with_different_values_have_different_keys(one, other):
    assert key(one, "/a") != key(other, "/a")


def test_key_of_several_pointers_separates_their_values():
    assert key('{"a": "x", "b": "y\\u0000z"}', "/a", "/b") != key('{"a": "x\\u0000y", "b": "z"}', "/a", "/b")
    assert key('{"a": "x", "b": "y"}', "/a", "/b") != key('{"a": "y", "b": "x"}', "/a", "/b")


def test_automations_have_different_keys_for_the_same_payload():
    assert key("{}", "/a") != key("{}", "/a", automation="aut_b")


def test_pointer_can_contain_array_indexes_and_escaped_names():
    assert key('{"a": [5, 6]}', "/a/1") == key('{"a": [7, 6]}', "/a/1")
    assert key('{"a/b": {"~": 1}}', "/a~1b/~0") == key('{"a/b": {"~": 1, "x": 2}}', "/a~1b/~0")
    assert key('{"a": [5]}', "/a/1") == key('{"a": [5]}', "/a/99999999999999999999")


def test_policy_without_concurrency_and_debounce_has_no_key():
    parsed = parse(b"{}")
    assert isinstance(parsed, Parsed)

    assert RunPolicy(priority=Priority.HIGH).policy_key(AutomationId("aut_a"), parsed) is None
    assert RunPolicy(debounce=Debounce(seconds=1, max_seconds=1)).policy_key(AutomationId("aut_a"), parsed) is not None


@pytest.mark.parametrize(
    ("failures", "exit_status", "delay"),
    [(1, 3, 2), (2, 3, 4), (3, 3, 5), (4, 3, None), (1, 4, None), (1, None, None)],
)
def test_retry_delay_doubles_up_to_its_maximum(failures, exit_status, delay):
    retry = Retry(attempts=4, backoff_seconds=2, max_backoff_seconds=5, exit_codes=(3,))

    assert retry.delay_after(failures, exit_status) == delay


def test_retry_without_exit_codes_applies_to_every_failure():
    assert Retry(attempts=2).delay_after(1, None) == 30


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ([], set()),
        ([("a", 0)], set()),
        ([("a", 0), ("a", 9)], {0}),
        ([("a", 0), ("a", 10)], set()),
        ([("a", 0), ("b", 5), ("a", 9), ("b", 16)], {0}),
        # Of each group of deliveries, the newest one starts a run.
        ([("a", 0), ("a", 5), ("a", 10), ("a", 30), ("a", 31)], {0, 1, 3}),
        # After 25 s a run starts, although deliveries continue. The next delivery begins a new group.
        ([("a", 0), ("a", 8), ("a", 16), ("a", 24), ("a", 25), ("a", 33)], {0, 1, 2, 4}),
    ],
)
def test_debounce_supersedes_all_deliveries_of_a_group_but_the_newest(arrivals, expected):
    debounce = Debounce(seconds=10, max_seconds=25)

    superseded = superseded_by_debounce(debounce, [(key.encode(), at * 1_000_000) for key, at in arrivals])

    assert superseded == expected


@pytest.mark.parametrize("value", EXTREME_VALUES.values(), ids=EXTREME_VALUES.keys())
def test_extreme_value_has_a_key_in_a_thread_with_a_small_stack(value):
    keys: list[bytes | None] = []
    # The smallest default among the common platforms.
    previous_size = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=lambda: keys.append(key(payload_with(value).decode(), "/k")))
        thread.start()
    finally:
        threading.stack_size(previous_size)
    thread.join()

    assert [type(key) for key in keys] == [bytes]


def test_keys_are_the_same_in_every_version():
    # The database has keys of held runs, which a later version must not compute in another way.
    value = '{"b": [1.50, -100, 0, 1e30, true, null, "é"], "a": {}}'

    assert (key(f'{{"a": {value}}}', "/a") or b"").hex() == "334e543c6e26c2442a6ad027ac9159e5"


def test_every_problem_of_a_policy_is_reported_with_its_pointer():
    source = {"concurrency": {"limit": 0, "per": "hour"}, "retry": {"exit_codes": [1, 256]}, "priority": "urgent"}

    with pytest.raises(Invalid) as refused:
        read(RunPolicy, source)

    assert [(fault.pointer, fault.message) for fault in refused.value.faults] == [
        ("/concurrency/per", "Unknown field 'per'. Known fields: key, limit, when_busy."),
        ("/concurrency/limit", "limit must be a whole number from 1 to 1,000."),
        ("/retry/attempts", "attempts must be a whole number from 1 to 20."),
        ("/retry/exit_codes/1", "Each item of exit_codes must be a whole number from 1 to 255."),
        ("/priority", "priority must be high, normal or low."),
    ]

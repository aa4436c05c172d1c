"""Every tool: which operations are tools, with which hints, and its result for every kind of caller."""

import json
from typing import Any

import jsonschema
import pytest
from mcp import MCPError

from hookmill.web.api import application, operations
from hookmill.web.api.openapi import openapi_document
from hookmill.web.mcp.tools import RESOURCES, TOOLS, tools_of
from tests.api.test_permissions import TABLE, expected_status
from tests.mcp.clients import TRANSPORTS, data_of, text_of, with_client

NOT_TOOLS = {
    "secrets, keys and tokens": """
        create_webhook rotate_webhook sync_webhook list_secrets create_secret show_secret replace_secret delete_secret
        list_keys create_key revoke_key report_attempt create_sign_in_link
    """,
    "members and roles": "list_members add_member show_member change_member remove_member give_role take_role",
    "where alarms are sent": """
        create_alarm_destination list_alarm_destinations delete_alarm_destination test_alarm_destination
        create_installation_alarm_destination list_installation_alarm_destinations
        delete_installation_alarm_destination test_installation_alarm_destination
    """,
    "what stops deliveries, cancels many runs or can't be undone": """
        change_webhook delete_webhook delete_automation cancel_runs apply_definitions
    """,
    "administration": "create_factory change_factory list_audit_log list_team_audit_log",
    "what another tool returns, too": "show_factory show_alarm show_installation_alarm",
    "what hides alarms": "snooze_alarm wake_alarm snooze_installation_alarm wake_installation_alarm",
    "documents for people and other programs": "show_definition_schema show_openapi show_docs show_docs_style",
}
"""The operations that are no tools, by what they are about."""
DOCUMENT = openapi_document(application())
OPERATIONS = {
    item["operationId"]: (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method, item in methods.items()
}
CALLERS = ("viewer", "manager", "admin", "other manager")


def test_each_operation_of_the_api_is_a_tool_or_is_listed_as_none():
    not_tools = [name for names in NOT_TOOLS.values() for name in names.split()]

    assert sorted([*TOOLS, *not_tools]) == sorted(OPERATIONS)
    assert len(OPERATIONS) == len(list(operations(application())))


def test_only_tools_that_change_nothing_have_the_read_only_hint():
    changing = {name for name, hints in TOOLS.items() if not hints.read_only_hint}
    evaluating = {"test_filter", "backtest_filter", "plan_definitions"}

    assert changing == {name for name in TOOLS if OPERATIONS[name][0] != "GET"} - evaluating
    assert {name for name in changing if TOOLS[name].destructive_hint} == {"change_automation", "cancel_run"}
    assert {name for name in changing if TOOLS[name].idempotent_hint} == {"change_automation", "cancel_run"}


def test_input_schemas_are_complete_and_contain_every_parameter():
    for name, tool in tools_of(json.dumps(DOCUMENT).encode()).items():
        schema = tool.definition.input_schema
        jsonschema.Draft202012Validator.check_schema(schema)
        assert "#/components" not in json.dumps(schema)
        method, path = OPERATIONS[name]
        item = DOCUMENT["paths"][path][method.lower()]
        names = [parameter["name"] for parameter in item.get("parameters", ()) if parameter["name"] != "If-Match"]
        if "requestBody" in item:
            reference = json.dumps(item["requestBody"]).partition("schemas/")[2].partition('"')[0]
            names += DOCUMENT["components"]["schemas"][reference]["properties"]
        # A name that occurs twice would be sent to one place only.
        assert sorted(names) == sorted(schema["properties"])
        assert tool.definition.description


def arguments_for(name: str, ids: dict[str, str], caller: str) -> dict[str, Any]:
    """Valid arguments of a tool: the parameters of its path, and the body of the API's permission table."""
    method, path = OPERATIONS[name]
    body = TABLE[method, path].body
    arguments: dict[str, Any] = {key: value for key, value in ids.items() if f"{{{key}}}" in path}
    arguments |= body(ids) if body is not None else {}
    return arguments | ({"name": f"new of {caller}"} if name == "create_automation" else {})


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("caller", CALLERS)
def test_tools_follow_the_permissions_of_the_api(scene, caller, transport):
    ids = scene.deliver({"action": "opened", "for": f"{caller} {transport}"})

    async def call_all(client: Any) -> dict[str, Any]:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == list(TOOLS)
        results = {
            name: await client.call_tool(name, arguments_for(name, ids, f"{caller} {transport}")) for name in listed
        }
        for template in RESOURCES:
            uri = tools_of(json.dumps(DOCUMENT).encode())[template].uri(arguments_for(template, ids, caller))
            try:
                results[uri] = await client.read_resource(uri)
            except MCPError as error:
                results[uri] = error
        return results

    results = with_client(scene.service, scene.keys[caller], call_all, transport)

    for name in TOOLS:
        expected = expected_status(OPERATIONS[name], caller)
        result = results.pop(name)
        data, _ = data_of(text_of(result))
        assert result.structured_content is None
        assert result.is_error is (expected >= 400), (name, data)
        if result.is_error:
            assert json.loads(data)["status"] == expected, (name, data)
        assert not [canary for canary in scene.canaries if canary in data], name
    for uri, result in results.items():
        text = str(result) if caller == "other manager" else result.contents[0].text
        data, _ = data_of(text)
        assert ('"not_found"' in data) is (caller == "other manager"), uri
        assert not [canary for canary in scene.canaries if canary in data], uri


def test_search_for_secrets_would_find_them(scene):
    assert len(scene.canaries) == len(set(scene.canaries)) == 10
    assert all(scene.canaries)


def test_viewers_are_refused_what_changes_something(scene):
    arguments = {"factory": "default", "run": scene.ids["run"]}

    result = with_client(scene.service, scene.keys["viewer"], lambda client: client.call_tool("cancel_run", arguments))

    assert result.is_error
    assert "This requires the role manager in factory" in text_of(result)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("show_webhook", {"factory": "default"}, "The argument uid is missing"),
        ("show_webhook", {"factory": "..", "uid": "x"}, "The argument factory is missing, or is no name"),
        ("show_webhook", {"factory": "default", "uid": "a/../../b"}, '"not_found"'),
        ("list_runs", {"factory": "default", "state": "odd"}, '"parameter":"state"'),
        ("list_runs", {"factory": "default", "limt": 3}, "This operation has no such parameter."),
        ("test_filter", {"factory": "default", "delivery_id": "x"}, '"pointer":"/delivery_id"'),
        ("replay_delivery", {"factory": "default", "delivery": "x", "Idempotency-Key": "ü"}, '"code":'),
        ("run_automation", {"factory": "default", "automation": "aut_x", "odd": 1}, '"pointer":"/odd"'),
    ],
)
def test_invalid_arguments_are_refused_like_those_of_the_api(scene, name, arguments, reason):
    result = with_client(scene.service, scene.keys["manager"], lambda client: client.call_tool(name, arguments))

    assert result.is_error
    assert reason in text_of(result)


def test_half_a_surrogate_pair_is_not_sent_to_the_api():
    tool = tools_of(json.dumps(DOCUMENT).encode())["list_runs"]

    assert tool.request({"factory": "\ud800", "cursor": "\udfff"}).target == "/api/v1/factories/%3F/runs?cursor=%3F"


def test_unknown_tools_and_resources_are_refused(scene):
    async def try_all(client: Any) -> list[str]:
        errors = []
        for act in (
            lambda: client.call_tool("rotate_webhook", {"factory": "default", "uid": scene.ids["uid"]}),
            lambda: client.read_resource("hookmill://factories/default/secrets/DEPLOY_TOKEN"),
            lambda: client.read_resource("file:///etc/passwd"),
        ):
            with pytest.raises(MCPError) as error:
                await act()
            errors.append(str(error.value))
        return errors

    errors = with_client(scene.service, scene.keys["admin"], try_all)

    assert errors == ["There is no such tool.", "There is no such resource.", "There is no such resource."]


def test_change_is_in_the_audit_log_with_its_channel(scene):
    async def disable(client: Any) -> bool:
        arguments = {"factory": "default", "automation": scene.automation.id, "enabled": False}
        disabled = await client.call_tool("change_automation", arguments)
        enabled = await client.call_tool("change_automation", arguments | {"enabled": True})
        return bool(disabled.is_error or enabled.is_error)

    for transport in TRANSPORTS:
        assert not with_client(scene.service, scene.keys["manager"], disable, transport)

    newest = scene.management.audit.of_factory(scene.may, limit=4)
    assert [entry.channel for entry in newest] == ["api", "api", "mcp", "mcp"]
    assert {entry.actor_name for entry in newest} == {"manager"}


def test_retry_with_the_same_idempotency_key_starts_one_run(scene):
    arguments = {
        "factory": "default",
        "automation": scene.automation.id,
        "payload": {"order": 17},
        "Idempotency-Key": "one",
    }

    async def start_twice(client: Any) -> list[str]:
        results = [await client.call_tool("run_automation", arguments) for _ in range(2)]
        return [json.loads(data_of(text_of(result))[0])["run_id"] for result in results]

    for transport in TRANSPORTS:
        first, second = with_client(scene.service, scene.keys["manager"], start_twice, transport)
        assert first == second


@pytest.mark.parametrize("key", ["", "hmk_unknown"])
def test_stdio_client_without_a_valid_key_gets_no_data(scene, key):
    async def call(client: Any) -> Any:
        return await client.call_tool("list_webhooks", {"factory": "default"})

    if key:
        result = with_client(scene.service, key, call, "stdio")
        assert result.is_error
        assert json.loads(data_of(text_of(result))[0])["code"] == "authentication_failed"
    else:
        with pytest.raises(BaseExceptionGroup) as error:
            with_client(scene.service, key, call, "stdio")
        assert error.group_contains(MCPError)

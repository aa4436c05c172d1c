"""Which operations of the API are tools, and the request that a call of a tool becomes.

Names, descriptions and input schemas of tools come from the API's OpenAPI document.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

from mcp_types import Tool, ToolAnnotations

from hookmill.domain.errors import Invalid

API_PREFIX: Final = "/api/v1/"
_READS: Final = ToolAnnotations(read_only_hint=True)
_ADDS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False)
_REPLACES: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)

TOOLS: Final[Mapping[str, ToolAnnotations]] = {
    **dict.fromkeys(
        (
            "show_me list_factories list_webhooks show_webhook list_deliveries show_delivery download_payload"
            " explain_delivery list_dropped_attempts list_runs show_run show_run_output list_run_files"
            " download_run_file show_queue test_filter backtest_filter list_schemes list_automations show_automation"
            " plan_definitions export_definitions list_alarms list_installation_alarms"
        ).split(),
        _READS,
    ),
    **dict.fromkeys("replay_delivery create_automation run_automation".split(), _ADDS),
    **dict.fromkeys("change_automation cancel_run".split(), _REPLACES),
}
"""The hints of each tool, by operation id. No tool returns or takes a secret, a key or a URL with a token."""
RESOURCES: Final = ("download_payload", "download_run_file")
"""The operations whose results are also resources."""
_REFERENCE: Final = re.compile('#/components/schemas/([^"/]+)')


class ApiRequest(NamedTuple):
    method: str
    path: str
    """Percent-encoded, without the query."""
    query: Mapping[str, str] = MappingProxyType({})
    body: bytes | None = None
    """JSON; None if the operation takes no body."""
    idempotency_key: str | None = None

    @property
    def target(self) -> str:
        """The path and the query."""
        return f"{self.path}?{urlencode(self.query, errors='replace')}" if self.query else self.path

    @property
    def headers(self) -> dict[str, str]:
        """All headers but the caller's API key."""
        headers = {"Content-Type": "application/json"} if self.body is not None else {}
        return headers if self.idempotency_key is None else headers | {"Idempotency-Key": self.idempotency_key}


class ApiTool:
    """One operation of the API as a tool."""

    def __init__(self, method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> None:
        """`operation`: the operation's object in the OpenAPI document. `schemas`: the document's schemas, by name."""
        name: str = operation["operationId"]
        parameters = [each for each in operation.get("parameters", ()) if each["name"] != "If-Match"]
        properties = {each["name"]: each["schema"] for each in parameters}
        required = [each["name"] for each in parameters if each["required"]]
        body = operation.get("requestBody")
        if body is not None:
            (model,) = _REFERENCE.findall(json.dumps(body))
            properties |= schemas[model]["properties"]
            required += schemas[model].get("required", ()) if body.get("required") else ()
        self._method = method.upper()
        self._path = path
        self._parameters = parameters
        self._takes_body = body is not None
        self.has_pages = "limit" in properties
        self.uri_template = f"hookmill://{path.removeprefix(API_PREFIX)}"
        self.definition = Tool(
            name=name,
            title=operation["summary"],
            description=f"{operation['description']}\n\nRequired role: {operation['x-role']}.",
            input_schema=_self_contained(
                {"type": "object", "properties": properties, "required": required, "additionalProperties": False},
                schemas,
            ),
            annotations=TOOLS[name],
        )

    def request(self, arguments: Mapping[str, Any]) -> ApiRequest:
        """The request of a call with these arguments.

        Raises `Invalid` if a parameter of the path is missing. The API checks the other arguments.
        """
        rest = dict(arguments)
        values: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
        for parameter in self._parameters:
            name, place = parameter["name"], parameter["in"]
            value = rest.pop(name, None)
            # HTTP clients and proxies remove the segments `.` and `..` from a path.
            if place == "path" and value in (None, "", ".", ".."):
                raise Invalid(f"The argument {name} is missing, or is no name and no id.")
            if value is not None:
                values[place][name] = value if isinstance(value, str) else json.dumps(value)
        segments = {name: quote(value, safe="", errors="replace") for name, value in values["path"].items()}
        # Without a body, the API refuses what is left, as it refuses any unknown parameter.
        query = values["query"] if self._takes_body else values["query"] | {name: str(rest[name]) for name in rest}
        return ApiRequest(
            self._method,
            self._path.format_map(segments),
            query,
            json.dumps(rest).encode() if self._takes_body else None,
            values["header"].get("Idempotency-Key"),
        )

    def uri(self, arguments: Mapping[str, Any]) -> str:
        """The URI of the resource that a call with these arguments returns."""
        return f"hookmill://{self.request(arguments).path.removeprefix(API_PREFIX)}"

    def arguments_of(self, uri: str) -> dict[str, str] | None:
        """The arguments of the call that returns this resource. None if the tool does not return it."""
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(self.uri_template))
        match = re.fullmatch(pattern, uri)
        return {name: unquote(value) for name, value in match.groupdict().items()} if match is not None else None


def tools_of(openapi_document: bytes) -> dict[str, ApiTool]:
    """The tools by name. An operation that the document of another version lacks is no tool."""
    document = json.loads(openapi_document)
    tools = {
        operation["operationId"]: ApiTool(method, path, operation, document["components"]["schemas"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] in TOOLS
    }
    return {name: tools[name] for name in TOOLS if name in tools}


def _self_contained(schema: dict[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with all schemas that it refers to, directly or not, in `$defs`."""
    definitions: dict[str, Any] = {}
    while missing := set(_REFERENCE.findall(json.dumps([schema, definitions]))) - definitions.keys():
        definitions |= {name: schemas[name] for name in sorted(missing)}
    if definitions:
        schema = {**schema, "$defs": definitions}
    contained: dict[str, Any] = json.loads(_REFERENCE.sub(r"#/$defs/\1", json.dumps(schema)))
    return contained

"""A model whose answers are fixed, with the APIs that agents use."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Protocol

ANSWER: Final = "Hello from the model."
LAST_RESULT: Final = "{last result}"


@dataclass(frozen=True)
class ToolUse:
    """A use of a tool that the model asks for."""

    name: str
    arguments: Mapping[str, Any]
    """`LAST_RESULT` in a text stands for what the tool before has returned."""


@dataclass(frozen=True)
class ModelRequest:
    """What an endpoint got."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


Content = ToolUse | str
"""What the model answers: the use of a tool, or text."""


class ModelApi(Protocol):
    """An API of models. Each answer has 15 input tokens and 5 output tokens."""

    def key(self, request: ModelRequest) -> str | None: ...

    def results(self, request: ModelRequest) -> Sequence[str]:
        """What the tools have returned that the model asked for."""
        ...

    def answer(self, request: ModelRequest, content: Content, number: int) -> tuple[str, str]:
        """The type and the body of the response. `number`: how many tools the model has used before."""
        ...


@dataclass
class ModelEndpoint:
    """An endpoint that answers with each of its tool uses, then `ANSWER`."""

    port: int = 0
    is_https: bool = False
    keys: list[str | None] = field(default_factory=list)
    """The key of each request."""
    prompts: list[str] = field(default_factory=list)
    """The body of each request, as JSON."""

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self.is_https else f"http://127.0.0.1:{self.port}"


@contextmanager
def model_endpoint(
    *tool_uses: ToolUse,
    api: "ModelApi | None" = None,
    certificate_and_key: tuple[Path, Path] | None = None,
    address: str = "127.0.0.1",
) -> Iterator[ModelEndpoint]:
    """Serve a model. `api`: None stands for `MessagesApi`."""
    served_api = api or MessagesApi()
    endpoint = ModelEndpoint(is_https=certificate_and_key is not None)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self):
            self._answer(404, "application/json", "{}")

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = ModelRequest(self.path, headers, body)
            endpoint.keys.append(served_api.key(request))
            endpoint.prompts.append(json.dumps(body))
            results = served_api.results(request)
            content_type, text = served_api.answer(request, _next_content(tool_uses, results), len(results))
            self._answer(200, content_type, text)

        def _answer(self, status: int, content_type: str, text: str):
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer((address, 0), Handler)
    endpoint.port = server.server_address[1]
    if certificate_and_key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate_and_key)
        # Each connection's thread does the handshake, so a client that does not complete it delays no other.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _next_content(tool_uses: Sequence[ToolUse], results: Sequence[str]) -> Content:
    """The next tool use after those whose results the request has; `ANSWER` after the last one."""
    if len(results) >= len(tool_uses):
        return ANSWER
    tool_use = tool_uses[len(results)]
    last_result = results[-1] if results else ""
    arguments = {
        name: value.replace(LAST_RESULT, last_result) if isinstance(value, str) else value
        for name, value in tool_use.arguments.items()
    }
    return ToolUse(tool_use.name, arguments)


def _event_stream(events: Iterator[Mapping[str, Any]]) -> tuple[str, str]:
    text = "".join(
        (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n" for event in events
    )
    return "text/event-stream", text


class MessagesApi:
    """Anthropic's Messages."""

    def key(self, request: ModelRequest) -> str | None:
        return request.headers.get("x-api-key")

    def results(self, request: ModelRequest) -> Sequence[str]:
        contents = [message["content"] for message in request.body["messages"]]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        return [_text_of(block.get("content", "")) for block in blocks if block["type"] == "tool_result"]

    def answer(self, request: ModelRequest, content: Content, number: int) -> tuple[str, str]:
        model = request.body["model"]
        if request.body.get("stream"):
            return _event_stream(_message_events(model, content, number))
        blocks = [_block(content, number)]
        usage = {"input_tokens": 15, "output_tokens": 5}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": blocks}
        return "application/json", json.dumps({**message, "stop_reason": _stop_reason(content), "usage": usage})


def _text_of(content: str | Sequence[Mapping[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def _stop_reason(content: Content) -> str:
    return "tool_use" if isinstance(content, ToolUse) else "end_turn"


def _block(content: Content, number: int) -> dict[str, Any]:
    if isinstance(content, ToolUse):
        return {"type": "tool_use", "id": f"toolu_{number}", "name": content.name, "input": content.arguments}
    return {"type": "text", "text": content}


def _message_events(model: str, content: Content, number: int) -> Iterator[dict[str, Any]]:
    """The events of a message with this one block of content."""
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    block = _block(content, number)
    if isinstance(content, ToolUse):
        block["input"] = {}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(content.arguments)}
    else:
        block["text"] = ""
        delta = {"type": "text_delta", "text": content}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": _stop_reason(content), "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


class ResponsesApi:
    """OpenAI's Responses."""

    def key(self, request: ModelRequest) -> str | None:
        return request.headers.get("authorization", "").removeprefix("Bearer ") or None

    def results(self, request: ModelRequest) -> Sequence[str]:
        return [str(item["output"]) for item in request.body["input"] if item["type"] == "function_call_output"]

    def answer(self, request: ModelRequest, content: Content, number: int) -> tuple[str, str]:
        return _event_stream(_response_events(content, number))


def _response_events(content: Content, number: int) -> Iterator[dict[str, Any]]:
    response = {"id": f"resp_{number}"}
    yield {"type": "response.created", "response": response}
    item: dict[str, Any]
    if isinstance(content, ToolUse):
        arguments = json.dumps(content.arguments)
        item = {"type": "function_call", "call_id": f"call_{number}", "name": content.name, "arguments": arguments}
    else:
        text = {"type": "output_text", "text": content}
        item = {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": [text]}
    yield {"type": "response.output_item.done", "item": item}
    usage = {
        "input_tokens": 15,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 20,
    }
    yield {"type": "response.completed", "response": {**response, "usage": usage}}


class GeminiApi:
    """Google's Gemini API."""

    def key(self, request: ModelRequest) -> str | None:
        return request.headers.get("x-goog-api-key")

    def results(self, request: ModelRequest) -> Sequence[str]:
        parts = [part for content in request.body.get("contents", []) for part in content.get("parts", [])]
        return [json.dumps(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]

    def answer(self, request: ModelRequest, content: Content, number: int) -> tuple[str, str]:
        part = (
            {"functionCall": {"id": f"call_{number}", "name": content.name, "args": content.arguments}}
            if isinstance(content, ToolUse)
            else {"text": content}
        )
        response = {
            "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 15, "candidatesTokenCount": 5, "totalTokenCount": 20},
        }
        if ":streamGenerateContent" in request.path:
            return _event_stream(iter([response]))
        return "application/json", json.dumps(response)

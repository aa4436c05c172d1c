"""The API in the process of a command: for hosts on which no service runs."""

import asyncio
import io
import os
from collections.abc import Mapping
from typing import NoReturn

from hookmill.app import build_management, now_us, open_store
from hookmill.client.requests import ServiceAnswer
from hookmill.settings import Settings
from hookmill.web.api import build_for_operator
from hookmill.web.asgi import Message, body_receiver, http_scope


class LocalTransport:
    """Performs requests of the operator on the installation that the settings name, without a network."""

    service = "This command"

    def __init__(self, settings: Settings) -> None:
        """Raises like `open_store`."""
        self._store = open_store(settings)
        self._application = build_for_operator(
            build_management(settings, self._store), os.geteuid(), now_us=now_us, report_failure=_raise_failure
        )
        self._runner = asyncio.Runner()

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> ServiceAnswer:
        return self._runner.run(self._perform(method, target, headers, body))

    async def _perform(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> ServiceAnswer:
        content = body or b""
        all_headers = {**headers, "Content-Length": str(len(content))}
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers.items()]
        messages: list[Message] = []

        async def send(message: Message) -> None:
            messages.append(message)

        await self._application(http_scope(method, target, pairs), body_receiver(content), send)
        start, *parts = messages
        return ServiceAnswer(
            start["status"],
            {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]},
            io.BytesIO(b"".join(part.get("body", b"") for part in parts)),
        )

    def close(self) -> None:
        self._runner.close()
        self._store.close()


def _raise_failure(_: str, error: BaseException) -> NoReturn:
    """Let the command report the error, instead of a log."""
    raise error

"""The connection of a command to the API: of a server, of the service on this host, or in the command's own process."""

from __future__ import annotations

import gc
import os
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hookmill.cli import contexts
from hookmill.client import Client
from hookmill.domain.errors import Invalid
from hookmill.domain.text import trimmed_text

if TYPE_CHECKING:
    from hookmill.client.requests import Transport

SERVER_VARIABLE: Final = "HOOKMILL_SERVER"
KEY_VARIABLE: Final = "HOOKMILL_API_KEY"


@contextmanager
def connected() -> Iterator[Client]:
    """A client of the API.

    `--server` or HOOKMILL_SERVER names the server, else the current context. Without them, the client is the operator's
    on this host.
    """
    with Client(_transport()) as client:
        yield client


def _transport() -> Transport:
    from hookmill.client.http import HttpTransport, usable_server

    if (url := variable(SERVER_VARIABLE)) is not None:
        server = usable_server(url)
        return HttpTransport(server, _key_for(server))
    if (context := contexts.current()) is not None:
        return HttpTransport(usable_server(context.server), context.api_key)
    return _transport_of_service() or _transport_in_this_process()


def _transport_in_this_process() -> Transport:
    # Loading these modules takes longer than most commands run.
    gc.enable()
    from hookmill.app.local_api import LocalTransport
    from hookmill.cli.session import read_settings_or_exit

    return LocalTransport(read_settings_or_exit())


def variable(name: str) -> str | None:
    """The value of an environment variable; None if it is unset or empty."""
    return trimmed_text(os.environ.get(name, "")) or None


def _key_for(server: str) -> str:
    key = variable(KEY_VARIABLE) or contexts.key_for(server)
    if key is None:
        raise Invalid(f"There is no API key for {server}. Run `hookmill login {server}`, or set {KEY_VARIABLE}.")
    return key


def _transport_of_service() -> Transport | None:
    """A connection to the service on this host that has the same settings; None if there is none."""
    from hookmill.client.http import SocketTransport
    from hookmill.client.local_socket import SOCKET_NAME, operator_proof

    # Reading all settings takes several times as long as the rest of the command. If one of these can't be read, the
    # command reads all of them, and reports the problem.
    with suppress(OSError, ValueError, TypeError, IndexError):
        settings: dict[str, str] = {}
        file = Path(variable("HOOKMILL_CONFIG") or "hookmill.toml")
        if file.exists():
            import tomllib

            settings = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        directory = Path(variable("HOOKMILL_DATA_DIR") or settings.get("data_dir", "hookmill-data")).absolute()
        if not (path := directory / SOCKET_NAME).exists():
            return None
        key = variable("HOOKMILL_MASTER_KEY") or settings.get("master_key")
        if key is None:
            key = (directory / "master.key").read_text(encoding="ascii").split()[0]
        database_url = variable("HOOKMILL_DATABASE_URL") or settings.get("database_url")
        return SocketTransport(path, operator_proof(b64decode(key, validate=True), database_url))
    return None

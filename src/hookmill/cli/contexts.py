"""The contexts of this user: servers with their API keys, in a file that only the user may read."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hookmill.domain.errors import Invalid, NotFound
from hookmill.domain.text import shown

LOCAL: Final = "local"
"""The name of the context for the service on this host, which needs no key."""


@dataclass(frozen=True, slots=True, repr=False)
class Context:
    name: str
    server: str
    api_key: str


def path() -> Path:
    directory = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - unlike Path.expanduser, never raises
    return Path(directory) / "hookmill" / "contexts.json"


def all_contexts() -> list[Context]:
    """The contexts, by name. Raises `Invalid` if the file can't be used."""
    return [
        Context(name, context["server"], context["api_key"]) for name, context in sorted(_read()["contexts"].items())
    ]


def current() -> Context | None:
    """The current context; None if it is the service on this host."""
    name = _read()["current"]
    return next((context for context in all_contexts() if context.name == name), None)


def key_for(server: str) -> str | None:
    """The API key of the first context with this server."""
    return next((context.api_key for context in all_contexts() if context.server == server), None)


def add(context: Context) -> None:
    """Add the context, or replace the one with its name. It becomes the current one."""
    content = _read()
    content["contexts"][context.name] = {"server": context.server, "api_key": context.api_key}
    _write({**content, "current": context.name})


def use(name: str) -> None:
    """Make the context the current one. Raises `NotFound`."""
    content = _read()
    if name != LOCAL:
        _require(content, name)
    _write({**content, "current": name if name != LOCAL else None})


def remove(name: str) -> None:
    """Remove the context and its key. Raises `NotFound`."""
    content = _read()
    _require(content, name)
    del content["contexts"][name]
    _write({**content, "current": content["current"] if content["current"] != name else None})


def _require(content: dict[str, Any], name: str) -> None:
    if name not in content["contexts"]:
        names = ", ".join(shown(known) for known in [LOCAL, *sorted(content["contexts"])])
        raise NotFound(f"There is no context {shown(name[:100])!r}. The contexts are: {names}.")


def _read() -> dict[str, Any]:
    file = path()
    try:
        with file.open(encoding="utf-8") as opened:
            if os.fstat(opened.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise Invalid(f"{shown(str(file))} contains API keys, and others may open it. Run chmod 600 on it.")
            content = json.load(opened)
        for context in content["contexts"].values():
            _ = (context["server"].encode(), context["api_key"].encode("ascii"))
        return {"current": content["current"], "contexts": content["contexts"]}
    except FileNotFoundError:
        return {"current": None, "contexts": {}}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Invalid(f"{shown(str(file))} can't be read. Remove it, and log in again.") from None


def _write(content: dict[str, Any]) -> None:
    # Imported only here, because few commands write the file.
    from hookmill.store.private_file import new_private_file

    file = path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with new_private_file(file, replaces=True) as opened:
        opened.write(json.dumps(content, indent=2).encode() + b"\n")

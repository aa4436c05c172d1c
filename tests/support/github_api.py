"""The description of its API that GitHub publishes. npm downloads it into a cache."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import jsonschema

from tests.support.debian import ProgramUnavailable

PACKAGE: Final = "@octokit/openapi@23.0.2"
DOWNLOAD_SECONDS: Final = 300
DESCRIPTION: Final = "package/generated/api.github.com.json"


def github_description() -> Any:
    """The description, as JSON. Raises `ProgramUnavailable`."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = caches / "hookmill-tests" / "octokit-openapi-23.0.2.json"
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.with_suffix(".lock").open("ab") as lock:
        # Several test processes may find at the same moment that it is missing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.exists():
            _download(cache)
    return json.loads(cache.read_bytes())


def _download(cache: Path):
    npm = shutil.which("npm")
    if npm is None:
        raise ProgramUnavailable(
            "The tests download GitHub's description with npm, and there is none. Install Node.js."
        )
    with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
        process = subprocess.run(
            [npm, "pack", "--silent", PACKAGE], cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
        )
        if process.returncode != 0:
            raise ProgramUnavailable(f"npm could not download {PACKAGE}: {process.stderr.strip()[-400:]}")
        (archive,) = Path(directory).glob("*.tgz")
        with tarfile.open(archive) as files:
            member = files.extractfile(DESCRIPTION)
            assert member is not None
            content = Path(directory, "description.json")
            content.write_bytes(member.read())
        content.rename(cache)


def request_validator(description: Any) -> Callable[[str, str, Any], None]:
    """A function that raises if a request with a method, a path and a body does not fit the description."""
    parameters = description["components"]["parameters"]
    patterns = [
        (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), operations)
        for path, operations in description["paths"].items()
    ]

    def validate(method: str, target: str, content: Any):
        parts = urlsplit(target)
        found = [
            operations[method.lower()]
            for pattern, operations in patterns
            if pattern.fullmatch(parts.path) and method.lower() in operations
        ]
        assert found, f"GitHub has no {method} {parts.path}"
        known = [
            parameters[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
            for each in found[0].get("parameters", ())
        ]
        assert set(parse_qs(parts.query)) <= {each["name"] for each in known if each["in"] == "query"}, target
        if content is not None:
            schema = found[0]["requestBody"]["content"]["application/json"]["schema"]
            jsonschema.validate(content, _closed(schema))

    return validate


def _closed(schema: Any) -> Any:
    """The schema, which refuses unknown fields. `nullable` becomes JSON Schema."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items() if name != "nullable"}
    if schema.get("nullable") is True and isinstance(schema.get("type"), str):
        closed["type"] = [schema["type"], "null"]
    if isinstance(schema.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed

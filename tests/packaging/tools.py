"""Programs and schemas of the environment of the tests, for checking files of other tools."""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.support.waiting import LONG_SECONDS


def report_of(name: str, *arguments: str | Path) -> tuple[int, str]:
    """The exit code and the output of a program of this environment."""
    command = [Path(sys.executable).with_name(name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_SECONDS)
    return done.returncode, done.stdout + done.stderr


def errors_of(document: Any, schema_name: str) -> list[str]:
    """What a schema that check-jsonschema contains, such as `compose-spec`, refuses in a document."""
    # The program itself would load for seconds.
    file = files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{schema_name}.json"
    schema = json.loads(file.read_text())
    return [f"{error.instance_path}: {error.message}" for error in jsonschema_rs.iter_errors(schema, document)]

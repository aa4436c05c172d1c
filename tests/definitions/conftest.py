"""Folders of definition files for tests."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

Contents: TypeAlias = Mapping[str, str | bytes]
Folder: TypeAlias = Callable[[Contents], Path]


def write(root: Path, contents: Contents) -> Path:
    """Write files, by their paths, into a folder of definitions. Both subfolders are created in any case."""
    for part in ("webhooks", "automations"):
        (root / part).mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A function that writes files into the test's folder of definitions, and returns the folder's path."""
    return lambda contents: write(tmp_path / "definitions", contents)

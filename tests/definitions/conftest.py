"""Folders of definition files, as tests write them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

Contents: TypeAlias = Mapping[str, str | bytes]
Folder: TypeAlias = Callable[[Contents], Path]


def write(root: Path, contents: Contents) -> Path:
    """Write files by their paths. Both folders are there, whatever is in them."""
    for part in ("webhooks", "automations"):
        (root / part).mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Writes a folder of definitions, beside what it holds already."""
    return lambda contents: write(tmp_path / "definitions", contents)

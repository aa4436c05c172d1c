"""A real Claude Code."""

from pathlib import Path
from typing import Final

from tests.support.npm import npm_package

PACKAGE: Final = "@anthropic-ai/claude-code@2.1.197"


def claude_code() -> Path:
    """The program, which npm installs into a cache first. Raises `ProgramUnavailable`."""
    return npm_package(PACKAGE) / "node_modules" / ".bin" / "claude"

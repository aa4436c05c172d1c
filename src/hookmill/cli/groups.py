"""The group that contains all commands. It corrects messages about wrong usage."""

from typing import Any

import typer
from typer.core import TyperGroup

_PREFIX = "Value error, "
"""typer validates arguments with pydantic, which begins its messages with this."""


class RootGroup(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_PREFIX)
            raise

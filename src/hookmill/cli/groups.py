"""The group that contains all commands. It corrects messages about wrong usage."""

import os
import select
import sys
from typing import Any

import typer
from typer.core import TyperGroup

_PREFIX = "Value error, "
"""typer validates arguments with pydantic, which begins its messages with this."""


class RootGroup(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_PREFIX)
            raise
        except BrokenPipeError:
            if not _reader_has_gone():
                raise
            # The reader, such as `head`, has all that it wants. What is still buffered goes to /dev/null at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None


def _reader_has_gone() -> bool:
    """Whether standard output is a pipe that nobody reads."""
    poll = select.poll()
    poll.register(sys.stdout, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))

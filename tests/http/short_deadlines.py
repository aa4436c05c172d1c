"""The real service with deadlines of a few seconds, and with a writer that can start late."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.http.conftest import UNLIMITED
from tests.support.service import Service

SHORTENED: Final = Path(__file__).with_name("shortened")
HEADER_SECONDS: Final = 2
BODY_SECONDS: Final = 2
WRITE_SECONDS: Final = 2


@dataclass(slots=True)
class ShortDeadlineService(Service):
    """A service whose deadlines `shortened/sitecustomize.py` replaces."""

    writer_gate: Path = Path("/")
    """The writer process starts only when this path exists."""

    def environment(self) -> dict[str, str]:
        # `super()` does not work here: `slots=True` replaces this class with another one.
        environment = Service.environment(self)
        path = os.pathsep.join(filter(None, [str(SHORTENED), environment.get("PYTHONPATH", "")]))
        return environment | {
            "PYTHONPATH": path,
            "HOOKMILL_TEST_HEADER_MILLISECONDS": str(HEADER_SECONDS * 1000),
            "HOOKMILL_TEST_BODY_SECONDS": str(BODY_SECONDS),
            "HOOKMILL_TEST_WRITE_SECONDS": str(WRITE_SECONDS),
            "HOOKMILL_TEST_WRITER_GATE": str(self.writer_gate),
        }


def short_deadline_service(data_dir: Path, *, writer_gate: Path = Path("/")) -> ShortDeadlineService:
    """A service that is not started yet."""
    settings = {name.upper(): str(value) for name, value in UNLIMITED.items()}
    return ShortDeadlineService(data_dir, settings=settings, writer_gate=writer_gate)


@contextmanager
def serving_with_short_deadlines(data_dir: Path) -> Iterator[Service]:
    """Like `serving`."""
    service = short_deadline_service(data_dir)
    service.start()
    try:
        yield service
    finally:
        service.kill()

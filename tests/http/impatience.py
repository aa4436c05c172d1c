"""The real service with deadlines of seconds, and with a writer that may take its time to start."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.http.conftest import ENOUGH
from tests.support.service import Service

IMPATIENT: Final = Path(__file__).with_name("impatient")
HEADER_SECONDS: Final = 2
BODY_SECONDS: Final = 2
WRITE_SECONDS: Final = 2


@dataclass(slots=True)
class ImpatientService(Service):
    """`impatient/sitecustomize.py` reads what is set here."""

    writer_gate: Path = Path("/")
    """The writing process does not begin before this is there."""

    def environment(self) -> dict[str, str]:
        # By its name: in a class with slots `super()` means the class before it was given them.
        environment = Service.environment(self)
        path = os.pathsep.join(filter(None, [str(IMPATIENT), environment.get("PYTHONPATH", "")]))
        return environment | {
            "PYTHONPATH": path,
            "HOOKMILL_TEST_HEADER_MILLISECONDS": str(HEADER_SECONDS * 1000),
            "HOOKMILL_TEST_BODY_SECONDS": str(BODY_SECONDS),
            "HOOKMILL_TEST_WRITE_SECONDS": str(WRITE_SECONDS),
            "HOOKMILL_TEST_WRITER_GATE": str(self.writer_gate),
        }


def impatient_service(data_dir: Path, *, writer_gate: Path = Path("/")) -> ImpatientService:
    """Not started yet."""
    settings = {name.upper(): str(value) for name, value in ENOUGH.items()}
    return ImpatientService(data_dir, settings=settings, writer_gate=writer_gate)


@contextmanager
def serving_impatiently(data_dir: Path) -> Iterator[Service]:
    """As `serving`."""
    service = impatient_service(data_dir)
    service.start()
    try:
        yield service
    finally:
        service.kill()

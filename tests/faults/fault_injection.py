"""A service into whose processes faults are injected. It is started with its real command."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.service import Service

INJECTED = Path(__file__).with_name("injected")


@dataclass(slots=True)
class FaultyService(Service):
    faults: Mapping[str, str] = field(default_factory=dict)
    """Inputs of `injected/sitecustomize.py`: environment variables by name, without the prefix `HOOKMILL_TEST_`."""

    def environment(self) -> dict[str, str]:
        # `super()` does not work here: `slots=True` replaces this class with another one.
        environment = Service.environment(self)
        path = os.pathsep.join(filter(None, [str(INJECTED), environment.get("PYTHONPATH", "")]))
        faults = {f"HOOKMILL_TEST_{name}": value for name, value in self.faults.items()}
        return environment | faults | {"PYTHONPATH": path}


@contextmanager
def serving_with_faults(
    data_dir: Path, faults: Mapping[str, str], *, database_url: str | None = None, **settings: object
) -> Iterator[FaultyService]:
    """Like `serving`, with `FaultyService.faults`."""
    service = FaultyService(
        data_dir,
        database_url=database_url,
        settings={name.upper(): str(value) for name, value in settings.items()},
        faults=faults,
    )
    service.start()
    try:
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.kill()


class AdmissionStop:
    """Stops the writer process once, at a chosen step of an admission."""

    def __init__(self, path: Path):
        """`path` is the file through which the process gets its orders, the value of `STEPS`."""
        self.path = path

    def stop_at(self, step: str):
        """`step` is the first words of a statement."""
        prepared = self.path.with_suffix(".new")
        prepared.write_text(step)
        prepared.rename(self.path)

    def is_stopped(self) -> bool:
        return self.path.with_suffix(".stopped").exists()

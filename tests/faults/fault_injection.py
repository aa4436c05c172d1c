"""A service into whose processes faults are injected. It is started with its real command."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

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


class AdmissionFault:
    """Lets the writer process fail once, at a chosen step of an admission."""

    def __init__(self, path: Path):
        """`path` is the file through which the process gets its orders, the value of `STEPS`."""
        self.path = path

    def fail_at(self, step: int | str, how: Literal["kill", "raise", "stop"]):
        """`step` is its number or its name: the first words of a statement, `COMMIT` or `after COMMIT`."""
        prepared = self.path.with_suffix(".new")
        prepared.write_text(json.dumps({"step": step, "how": how}))
        prepared.rename(self.path)

    def clear(self):
        self.path.unlink(missing_ok=True)

    def take_failed_step(self) -> str | None:
        """The name of the step at which the process has failed since the last call, or None."""
        file = self.path.with_suffix(".failed")
        if not file.exists():
            return None
        name = file.read_text()
        file.unlink()
        return name

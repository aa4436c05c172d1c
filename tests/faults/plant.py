"""A service with a fault planted in it, started by its real command."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.support.service import Service

PLANTED = Path(__file__).with_name("planted")


@dataclass(slots=True)
class PlantedService(Service):
    planted: Mapping[str, str] = field(default_factory=dict)
    """What `planted/sitecustomize.py` reads, by name without `HOOKMILL_TEST_`."""

    def environment(self) -> dict[str, str]:
        # By its name: in a class with slots `super()` means the class before it was given them.
        environment = Service.environment(self)
        path = os.pathsep.join(filter(None, [str(PLANTED), environment.get("PYTHONPATH", "")]))
        ours = {f"HOOKMILL_TEST_{name}": value for name, value in self.planted.items()}
        return environment | ours | {"PYTHONPATH": path}


@contextmanager
def serving_planted(
    data_dir: Path, planted: Mapping[str, str], *, database_url: str | None = None, **settings: object
) -> Iterator[PlantedService]:
    """As `serving`, with faults."""
    service = PlantedService(
        data_dir,
        database_url=database_url,
        settings={name.upper(): str(value) for name, value in settings.items()},
        planted=planted,
    )
    service.start()
    try:
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.kill()


class Steps:
    """Orders to the writing process: at which step of an admission it is to fail, and how."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail_at(self, step: int | str, how: Literal["kill", "raise", "stop"]) -> None:
        """`step` is its number or its name: the first words of a statement, `COMMIT` or `after COMMIT`."""
        prepared = self.path.with_suffix(".new")
        prepared.write_text(json.dumps({"step": step, "how": how}))
        prepared.rename(self.path)

    def withdraw(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def struck(self) -> str | None:
        """What was about to be done when it failed, told once."""
        told = self.path.with_suffix(".struck")
        if not told.exists():
            return None
        name = told.read_text()
        told.unlink()
        return name

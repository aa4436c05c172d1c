"""The strangest values in every place that takes one: nothing fails, and every page opens afterwards."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from hookmill.store.keys.sealing import as_text, new_master_key
from tests.inputs.commands import LISTS, Place, places, run
from tests.inputs.service import Service
from tests.inputs.slots import PageSlot, Slot, page_slots, slots
from tests.inputs.values import COUNT, Strange, strange_values
from tests.support.counts import count
from tests.support.world import World

TRIES_ALL = "HOOKMILL_TEST_EVERY_VALUE" in os.environ
"""Takes an hour: every value in every place, instead of another part of them in each."""
OF_EACH_PLACE = COUNT if TRIES_ALL else count(100, usually=2)
OF_EACH_OPTION = COUNT if TRIES_ALL else count(50, usually=2)
ON_POSTGRES = count(25, usually=1)
PLACES_TO_A_TRY = count(1, usually=6)
"""On PostgreSQL, of so many places one is tried."""
PARTS = count(16, usually=1)
"""What is made by requests and commands makes each further one slower, so it is divided among so many services."""
VALUES = strange_values()
OFFSETS = ("+23:59", "-23:59", "+00:01", "-00:01")
ENDS = [each for each in VALUES if each.text.startswith(("0001-01-01T", "9999-12-31T")) and each.text.endswith(OFFSETS)]
MOMENTS = {"expires_at", "since", "until"}

pytestmark = pytest.mark.timeout(count(1_800, usually=300))


@contextmanager
def living(url: str, packages: Path, **choices: object) -> Iterator[Service]:
    world = World(url, webhooks_per_factory=100_000, packages=packages, **choices)  # type: ignore[arg-type]
    try:
        yield Service(world)
        assert world.failures == []
    finally:
        world.close()


@pytest.fixture
def operated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Makes a service that commands of this process work on too, in a directory of their own."""

    @contextmanager
    def made(url: str) -> Iterator[Service]:
        # Where a path leads upwards from, at most.
        directory = tmp_path / "of" / "the" / "commands"
        directory.mkdir(parents=True)
        monkeypatch.chdir(directory)
        key = new_master_key()
        settings = {"DATA_DIR": tmp_path, "MASTER_KEY": as_text(key), "WEBHOOKS_PER_FACTORY": 100_000}
        if not url.startswith("sqlite"):
            settings["DATABASE_URL"] = url
        for name, value in settings.items():
            monkeypatch.setenv(f"HOOKMILL_{name}", str(value))
        with living(url, tmp_path / "runs", key=key) as service:
            for arguments in (
                ["webhook", "create", "signed", "--mode", "signature", "--scheme", "github", "--secret-from-stdin"],
                ["member", "add", "ada@example.com", "--name", "Ada"],
                ["secret", "create", "SPARE"],
            ):
                assert run(arguments, b"given-secret").code == 0
            yield service

    return made


T = TypeVar("T", Slot, PageSlot, Place)


def of_each(every: Sequence[T], many: int) -> Iterator[tuple[int, T, Strange]]:
    """So many values for each of the places, another part of them for each, with a running number. A place for a moment
    always has the ends of the calendar."""
    numbers = itertools.count()
    for start, place in enumerate(every):
        part = [VALUES[(start * many + number) % len(VALUES)] for number in range(many)]
        if many < len(VALUES) and place.name.strip("-/") in MOMENTS:
            part += ENDS
        yield from ((next(numbers), place, value) for value in part)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_value_in_a_request_fails_or_closes_a_page(sqlite_store: str, tmp_path: Path, part: int):
    with living(sqlite_store, tmp_path) as service:
        try_requests(service, OF_EACH_PLACE, part, PARTS)


def test_no_value_in_a_request_to_postgresql_fails_or_closes_a_page(postgres_store: str, tmp_path: Path):
    with living(postgres_store, tmp_path) as service:
        try_requests(service, ON_POSTGRES, 0, PLACES_TO_A_TRY)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_value_in_a_command_fails_or_closes_a_page(operated, migrated_sqlite: Path, tmp_path: Path, part: int):
    with operated(f"sqlite:///{shutil.copy(migrated_sqlite, tmp_path / 'hookmill.db')}") as service:
        try_commands(service, OF_EACH_OPTION, part, PARTS)


def test_no_value_in_a_command_on_postgresql_fails_or_closes_a_page(operated, postgres_store: str):
    with operated(postgres_store) as service:
        try_commands(service, ON_POSTGRES, 0, PLACES_TO_A_TRY)


def try_requests(service: Service, many: int, first: int, step: int) -> None:
    every = list(slots())[first::step]
    failed = []
    for number, place, value in of_each(every, many):
        answer = place.fill(service, value, number)
        if answer.status >= 500:
            failed.append((place, repr(value)[:300], answer.status, service.api.unforeseen[-1:]))

    assert (len(every) + 1) * step > 250
    assert failed == []
    try_pages(service, many, first, step)
    service.must_open()


def try_pages(service: Service, many: int, first: int, step: int) -> None:
    every = list(page_slots())[first::step]
    failed = []
    for _, place, value in of_each(every, many):
        answer = place.fill(service, value)
        if answer.status >= 500:
            failed.append((place, repr(value)[:300], answer.status, service.dashboard.failures[-1:]))

    assert (len(every) + 1) * step > 60
    assert failed == []


def try_commands(service: Service, many: int, first: int, step: int) -> None:
    every = list(places())[first::step]
    failed = []
    for number, place, value in of_each(every, many):
        # No process can be given more: an argument ends with its first NUL.
        text = value.text.replace("\x00", "\ufffd")
        if not place.takes(text):
            continue
        arguments = place.arguments(text, service.places, number)
        try:
            ended = run(arguments, value.text.encode("utf-8", "surrogatepass"))
        except Exception as error:
            failed.append((repr(arguments)[:300], repr(error)[:300]))
            continue
        if ended.code not in {0, 1, 2} or b"Traceback" in ended.err:
            failed.append((repr(arguments)[:300], repr(ended)[:300]))

    assert (len(every) + 1) * step > 100
    assert failed == []
    for name in LISTS:
        for json in ([], ["--json"]):
            assert run([name, "list", *json]).code == 0, name
    service.must_open()

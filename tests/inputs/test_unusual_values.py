"""Unusual values in every input: no request or command fails unexpectedly, and every page still opens afterwards."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from hookmill.store.keys.sealing import KeyRing, as_text, new_master_key
from tests.inputs.commands import LISTED_RESOURCES, CommandInput, command_inputs, run
from tests.inputs.requests import PageInput, RequestInput, page_inputs, request_inputs
from tests.inputs.service import InProcessService
from tests.inputs.values import COUNT, UnusualValue, unusual_values
from tests.support.counts import count
from tests.support.world import World

TRIES_EVERY_VALUE = "HOOKMILL_TEST_EVERY_VALUE" in os.environ
"""Try every value in every input, instead of a few different ones in each. This takes an hour."""
VALUES_PER_REQUEST_INPUT = COUNT if TRIES_EVERY_VALUE else count(100, usually=1)
VALUES_PER_COMMAND_INPUT = COUNT if TRIES_EVERY_VALUE else count(50, usually=1)
VALUES_ON_POSTGRES = count(25, usually=1)
INPUT_STEP_ON_POSTGRES = count(1, usually=6)
"""On PostgreSQL, one of so many inputs is tried."""
PARTS = count(16, usually=1)
"""Each part has its own service, because every created object slows down later requests and commands."""
VALUES = unusual_values()
OFFSETS = ("+23:59", "-23:59", "+00:01", "-00:01")
EDGE_TIMES = [
    value for value in VALUES if value.text.startswith(("0001-01-01T", "9999-12-31T")) and value.text.endswith(OFFSETS)
]
TIME_INPUTS = {"expires_at", "since", "until"}

pytestmark = pytest.mark.timeout(count(1_800, usually=300))
CommandService = Callable[[str], AbstractContextManager[InProcessService]]


@contextmanager
def running_service(url: str, packages: Path, **choices: object) -> Iterator[InProcessService]:
    world = World(url, webhooks_per_factory=100_000, packages=packages, **choices)  # type: ignore[arg-type]
    try:
        yield InProcessService(world)
        assert world.failures == []
    finally:
        world.close()


@pytest.fixture
def command_service(tmp_path, monkeypatch):
    """Starts a service on this database. Commands of this process use the database, too."""

    @contextmanager
    def start(url: str) -> Iterator[InProcessService]:
        # A relative path of a test may go up this many directories.
        directory = tmp_path / "of" / "the" / "commands"
        directory.mkdir(parents=True)
        monkeypatch.chdir(directory)
        key = new_master_key()
        settings = {
            "DATA_DIR": tmp_path,
            "MASTER_KEY": as_text(key),
            "WEBHOOKS_PER_FACTORY": 100_000,
            "REPOSITORIES": '{"app": {"url": "https://git.example.com/app.git"}}',
        }
        if not url.startswith("sqlite"):
            settings["DATABASE_URL"] = url
        for name, value in settings.items():
            monkeypatch.setenv(f"HOOKMILL_{name}", str(value))
        with running_service(url, tmp_path / "runs", key=KeyRing([key])) as service:
            for arguments in (
                ["webhook", "create", "signed", "--mode", "signature", "--scheme", "github", "--secret-from-stdin"],
                ["member", "add", "ada@example.com", "--name", "Ada"],
                ["secret", "create", "SPARE"],
            ):
                assert run(arguments, b"given-secret").exit_code == 0
            yield service

    return start


T = TypeVar("T", RequestInput, PageInput, CommandInput)


def with_values(inputs: Sequence[T], values_per_input: int) -> Iterator[tuple[int, T, UnusualValue]]:
    """Each input with so many values, which differ from those of the previous input, and a unique number.

    Inputs for a time always have the times at the edges of the calendar.
    """
    numbers = itertools.count()
    for index, input_ in enumerate(inputs):
        first = index * values_per_input
        values = [VALUES[(first + number) % len(VALUES)] for number in range(values_per_input)]
        if values_per_input < len(VALUES) and input_.name.strip("-/") in TIME_INPUTS:
            values += EDGE_TIMES
        yield from ((next(numbers), input_, value) for value in values)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_value_in_a_request_causes_a_server_error(sqlite_store, tmp_path, part):
    with running_service(sqlite_store, tmp_path) as service:
        try_requests(service, VALUES_PER_REQUEST_INPUT, part, PARTS)


@pytest.mark.proof
def test_no_value_in_a_request_causes_a_server_error_on_postgresql(postgres_store, tmp_path):
    with running_service(postgres_store, tmp_path) as service:
        try_requests(service, VALUES_ON_POSTGRES, 0, INPUT_STEP_ON_POSTGRES)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_value_in_a_command_causes_a_traceback(command_service, migrated_sqlite, tmp_path, part):
    with command_service(f"sqlite:///{shutil.copy(migrated_sqlite, tmp_path / 'hookmill.db')}") as service:
        try_commands(service, VALUES_PER_COMMAND_INPUT, part, PARTS)


@pytest.mark.proof
def test_no_value_in_a_command_causes_a_traceback_on_postgresql(command_service, postgres_store):
    with command_service(postgres_store) as service:
        try_commands(service, VALUES_ON_POSTGRES, 0, INPUT_STEP_ON_POSTGRES)


def try_requests(service: InProcessService, values_per_input: int, first: int, step: int):
    inputs = list(request_inputs())[first::step]
    failures = []
    for number, input_, value in with_values(inputs, values_per_input):
        answer = input_.send(service, value, number)
        if answer.status >= 500:
            failures.append((input_, repr(value)[:300], answer.status, service.api.unexpected_errors[-1:]))

    assert (len(inputs) + 1) * step > 250
    assert failures == []
    try_pages(service, values_per_input, first, step)
    service.require_success_everywhere()


def try_pages(service: InProcessService, values_per_input: int, first: int, step: int):
    inputs = list(page_inputs())[first::step]
    failures = []
    for _, input_, value in with_values(inputs, values_per_input):
        answer = input_.send(service, value)
        if answer.status >= 500:
            failures.append((input_, repr(value)[:300], answer.status, service.dashboard.failures[-1:]))

    assert (len(inputs) + 1) * step > 60
    assert failures == []


def try_commands(service: InProcessService, values_per_input: int, first: int, step: int):
    inputs = list(command_inputs())[first::step]
    failures = []
    for number, input_, value in with_values(inputs, values_per_input):
        # The argument of a process can't contain a NUL.
        text = value.text.replace("\x00", "\ufffd")
        if not input_.accepts(text):
            continue
        arguments = input_.arguments(text, service.path_values, number)
        try:
            output = run(arguments, value.text.encode("utf-8", "surrogatepass"))
        except Exception as error:
            failures.append((repr(arguments)[:300], repr(error)[:300]))
            continue
        if output.exit_code not in {0, 1, 2} or b"Traceback" in output.err:
            failures.append((repr(arguments)[:300], repr(output)[:300]))

    assert (len(inputs) + 1) * step > 100
    assert failures == []
    for resource in LISTED_RESOURCES:
        for options in ([], ["--json"]):
            assert run([resource, "list", *options]).exit_code == 0, resource
    service.require_success_everywhere()

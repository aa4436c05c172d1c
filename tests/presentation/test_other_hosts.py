"""Two hosts with one PostgreSQL: a worker on one host, and API, dashboard and command line on the other.

The test runs both on this machine, with a data directory each.
"""

import socket
from urllib.parse import quote

import pytest

from hookmill.domain.ids import run_id
from hookmill.domain.run import RunState
from hookmill.domain.run_files import RunFileLimits
from hookmill.management import WebhookWithSecret
from hookmill.runs.file_writer import RunFileSettings
from hookmill.store.keys.sealing import KeyRing, as_text, new_master_key
from hookmill.store.runs.files import RunFileStorage
from tests.inputs import commands
from tests.inputs.service import InProcessService
from tests.runs.backlog import Backlog, Worker
from tests.support.passwords import quick_passwords
from tests.support.waiting import until
from tests.support.world import World

__all__ = ["quick_passwords"]

RUN_FILES = RunFileSettings(limits=RunFileLimits(file_bytes_max=1_000))
SCRIPT = """
echo first
until test -e {release_file}; do sleep 0.05; done
echo second
echo '<script>alert(1)</script>' > report.html
head -c 1001 /dev/zero > large
"""


@pytest.fixture
def service(postgres_store, tmp_path, monkeypatch):
    """API, dashboard and commands on the host without a worker."""
    key = new_master_key()
    directory = tmp_path / "other"
    directory.mkdir()
    monkeypatch.chdir(directory)
    for name, value in {"DATA_DIR": directory, "MASTER_KEY": as_text(key), "DATABASE_URL": postgres_store}.items():
        monkeypatch.setenv(f"HOOKMILL_{name}", str(value))
    world = World(postgres_store, key=KeyRing([key]), packages=directory / "runs", run_file_storage=RunFileStorage())
    try:
        yield InProcessService(world)
    finally:
        world.close()


def start_run(world: World) -> tuple[WebhookWithSecret, str]:
    """Start a run of the runner `command` by a delivery. Returns the webhook and the run's id."""
    webhook = world.webhook("builds")
    automation = world.automation("builder", webhook)
    with world.database.write() as tx:
        tx.run("UPDATE automation_versions SET runner = 'command' WHERE automation_id = :id", id=automation.id)
    world.post(webhook, b'{"build": 7}')
    (run,) = world.runs(webhook)
    return webhook, run_id(run.id)


def output_of_command(*arguments: str) -> bytes:
    output = commands.run(arguments)
    assert output.exit_code == 0, output.err
    return output.out


def test_every_channel_on_another_host_shows_output_and_files(service, tmp_path):
    world, release_file = service.world, tmp_path / "release"
    webhook, run = start_run(world)
    api_path, page_path = f"/factories/default/runs/{run}", f"/f/default/runs/{run}"
    command = ["sh", "-c", SCRIPT.format(release_file=release_file)]
    with Backlog(world.url, tmp_path / "worker") as backlog, Worker(backlog, command=command, run_files=RUN_FILES):
        until(lambda: service.api.get(f"{api_path}/output").json["output"] == "first\n", "the output is in the API")
        assert service.api.get(f"{api_path}/output").json | {"run_id": ""} == {
            "run_id": "",
            "output": "first\n",
            "size": 6,
            "is_cut": False,
        }
        assert b"first\n</pre>" in service.admin.get(page_path).body
        assert b"first\n</pre>" in service.admin.get(f"{page_path}/progress").body
        assert output_of_command("run", "log", run) == b"first\n"
        release_file.touch()
        until(lambda: world.runs(webhook)[0].state is RunState.SUCCEEDED, "the run has ended")

    package = tmp_path / "worker" / "runs" / run
    assert not (tmp_path / "other" / "runs" / run).exists()
    files = service.api.get(f"{api_path}/files").json["files"]
    files_on_disk = sorted((path.name, path.stat().st_size) for path in package.iterdir())
    assert sorted((file["name"], file["size"]) for file in files) == files_on_disk
    assert {file["name"]: file["only_on_host"] for file in files if file["only_on_host"]} == {
        "large": socket.gethostname()
    }
    page = service.admin.get(page_path).body.decode()
    assert "The package is not on this machine. Its files are stored copies." in page
    assert f'<bdi>large</bdi> <span class="quiet">only on <bdi>{socket.gethostname()}</bdi></span>' in page
    for name, _ in files_on_disk:
        downloads = [
            service.api.get(f"{api_path}/files/{quote(name)}"),
            service.admin.get(f"{page_path}/files/{quote(name)}"),
        ]
        if name == "large":
            assert [answer.status for answer in downloads] == [404, 404]
            assert f"It is only on the host {socket.gethostname()}." in downloads[0].json["detail"]
            continue
        for answer in downloads:
            assert (answer.status, answer.body) == (200, (package / name).read_bytes()), name
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{quote(name)}"
            assert answer.headers["content-security-policy"].startswith("default-src 'none'; sandbox")
            assert answer.headers["x-content-type-options"] == "nosniff"
    assert output_of_command("run", "log", run) == b"first\nsecond\n"
    output = output_of_command("run", "show", run).decode()
    assert "Package      not on this host; its files are stored copies\n" in output
    assert f"             large (1,001 bytes, only on the host {socket.gethostname()})\n" in output
    assert service.api.unexpected_errors == service.dashboard.failures == []

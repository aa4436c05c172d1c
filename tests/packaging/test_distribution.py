"""What `make dist` builds: the wheel contains everything, installs with pip alone, and does the main job."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hookmill import __version__
from hookmill.build import build_id
from scripts.dist import problem_of_checkout, problem_of_tag, write_distribution
from tests.packaging.wheels import base_python, link_files, write_wheels
from tests.support.ports import free_port
from tests.support.waiting import LONG_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
EPOCH = 1_795_252_356


@pytest.fixture(scope="module")
def distribution(tmp_path_factory):
    """A directory with the files of a release, built from this checkout."""
    directory = tmp_path_factory.mktemp("dist")
    write_distribution(directory, epoch=EPOCH)
    return directory


@pytest.fixture
def wheel(distribution):
    return distribution / f"hookmill-{__version__}-py3-none-any.whl"


def tracked_files(directory: str) -> set[str]:
    """The files below this directory of the checkout that git tracks, or would track."""
    listing = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", directory]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name for name in names if (ROOT / name).is_file()}


def build(source: Path, directory: Path, target: str, *, umask: int) -> Path:
    """The file that hatchling builds from `source` for the target, `wheel` or `sdist`, at `EPOCH`."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", directory, "-t", target],
        cwd=source,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)},
        check=True,
        capture_output=True,
        umask=umask,
        timeout=LONG_SECONDS,
    )
    [file] = directory.iterdir()
    return file


def locked_libraries() -> set[str]:
    return set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))


def test_wheel_contains_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        package = {name for name in archive.namelist() if not name.startswith(f"hookmill-{__version__}.dist-info/")}

    assert {f"src/{name}" for name in package} == tracked_files("src")
    suffixes = {Path(name).suffix for name in package}
    assert suffixes >= {".py", ".html", ".css", ".js", ".svg", ".toml", ".json", ".mako", ".LICENSE", ".typed"}


def test_wheel_names_its_version_extras_and_licences(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
        licences = [name for name in archive.namelist() if "/licenses/" in name]

    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0 AND 0BSD\n" in metadata
    assert "\nProvides-Extra: s3\n" in metadata
    assert {Path(name).name for name in licences} == {"LICENSE", "htmx.LICENSE", "htmx-ext-sse.LICENSE"}


def test_same_files_give_the_same_sdist(distribution, tmp_path):
    again = build(ROOT, tmp_path, "sdist", umask=0o077)

    assert again.read_bytes() == (distribution / again.name).read_bytes()


def test_wheel_from_the_sdist_has_the_same_bytes(distribution, wheel, tmp_path):
    with tarfile.open(distribution / f"hookmill-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")

    again = build(tmp_path / f"hookmill-{__version__}", tmp_path / "again", "wheel", umask=0o077)

    assert again.read_bytes() == wheel.read_bytes()


def test_sums_are_those_of_the_files(distribution):
    lines = (distribution / "SHA256SUMS").read_text().splitlines()

    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    names = {path.name for path in distribution.iterdir()} - {"SHA256SUMS"}
    assert sums == {name: hashlib.sha256((distribution / name).read_bytes()).hexdigest() for name in names}
    assert len(names) == 3


def test_list_of_components_has_every_locked_library_and_vendored_file(distribution):
    document = json.loads((distribution / f"hookmill-{__version__}.cdx.json").read_text())

    components = {component["name"]: component for component in document["components"]}
    assert components.keys() == locked_libraries() | {"htmx.org", "htmx-ext-sse"}
    assert document["metadata"]["component"]["version"] == __version__
    script = (ROOT / "src/hookmill/web/dashboard/static/htmx.min.js").read_bytes()
    assert components["htmx.org"]["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(script).hexdigest()}]
    assert all(component["purl"].endswith(f"@{component['version']}") for component in components.values())


def test_build_is_that_of_the_checkout_until_a_file_differs(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    # Its process has compiled files before it computes the id.
    command = [sys.executable, "-m", "hookmill", "--version"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    printed = subprocess.check_output(command, env=environment, text=True, timeout=LONG_SECONDS)
    style = next((tmp_path / "hookmill/web/dashboard/static").glob("*.css"))
    style.write_bytes(style.read_bytes() + b"\n")
    printed_later = subprocess.check_output(command, env=environment, text=True, timeout=LONG_SECONDS)

    assert printed == f"hookmill {__version__} (build {build_id()})\n"
    assert re.fullmatch(rf"hookmill {re.escape(__version__)} \(build [0-9a-f]{{12}}\)\n", printed_later)
    assert printed_later != printed


@pytest.mark.parametrize("tag", ["v0.0.1", f"v{__version__}.1", f"w{__version__}"])
def test_tag_of_another_version_is_not_released(tag):
    assert f"the tag {tag} does not name the version {__version__}" in str(problem_of_tag(tag))


def test_uncommitted_changes_are_not_released(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    (tmp_path / "new.txt").write_text("")

    problem_before = problem_of_checkout(tmp_path)
    subprocess.run([*git, "add", "new.txt"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=Add a file"], check=True)

    assert "new.txt" in str(problem_before)
    assert problem_of_checkout(tmp_path) is None


@pytest.mark.proof
def test_installed_with_pip_alone_it_does_the_main_job(wheel, tmp_path):
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    write_wheels(locked_libraries(), libraries)
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "HOOKMILL_PORT": str(free_port())}
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([base_python(), "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    pip = [base_python(), "-m", "pip", "--isolated", "--python", str(python)]
    offline = ["--no-index", "--find-links", str(libraries)]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-warn-conflicts", *offline, f"{wheel}[s3]"],
        env=environment | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=True,
        timeout=LONG_SECONDS,
    )
    [site_packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    link_files(site_packages, except_of="hookmill")
    output = tmp_path / "output"

    with output.open("wb") as stdout:
        service = subprocess.Popen(
            [tmp_path / "venv" / "bin" / "hookmill", "serve", "--json"],
            cwd=tmp_path,
            env=environment,
            stdout=stdout,
            start_new_session=True,
        )
    try:
        message = json.loads(until(lambda: output.read_text() if output.read_text().endswith("\n") else None))
        subprocess.run(["sh", "-c", message["curl"]], env=environment, check=True, timeout=30)
        runs = tmp_path / "hookmill-data" / "runs"
        payload = until(lambda: next(runs.glob("run_*/event-payload.json"), None), "the run's package is on disk")
        assert json.loads(payload.read_bytes())["message"] == "Hello from curl"
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.wait(LONG_SECONDS)

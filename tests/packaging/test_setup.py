"""`make run` and `make setup`: what they install, and that they never take it away from a running service."""

import importlib.util
import shutil
import subprocess
from collections.abc import Callable

import pytest

from scripts import bootstrap

PYPROJECT = """
[project]
name = "tiny"
version = "1"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
# Builds an editable wheel that contains only its metadata.
BACKEND = """
import zipfile
def build_editable(directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{directory}/tiny-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n")
        wheel.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("tiny-1.dist-info/RECORD", "")
    return "tiny-1-py3-none-any.whl"
"""


@pytest.fixture
def install(tmp_path):
    """Sets up a checkout at `tmp_path` whose lock files contain no packages."""
    bootstrap.install_uv()
    (tmp_path / "scripts").mkdir()
    shutil.copy(bootstrap.__file__, tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "backend.py").write_text(BACKEND)
    for lock in (*bootstrap.LOCKS["run"], *bootstrap.LOCKS["dev"], bootstrap.TOOLS_LOCK):
        (tmp_path / lock.name).write_text(f"# {lock.name}\n")
    spec = importlib.util.spec_from_file_location("bootstrap_of_checkout", tmp_path / "scripts" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.UV.parent.mkdir(parents=True)
    module.UV.symlink_to(bootstrap.UV)
    (module.TOOLS / ".stamp").write_text(module._fingerprint(module.TOOLS_LOCK))
    function: Callable[[str], None] = module.install
    return function


def test_set_up_takes_no_module_away_from_a_running_service(install, tmp_path):
    install("run")
    (packages,) = (tmp_path / ".venv").glob("lib/python*/site-packages")
    (packages / "loaded_later.py").write_text("print('loaded')")
    service = subprocess.Popen(
        [(tmp_path / ".venv").resolve() / "bin" / "python", "-c", "input(); import loaded_later"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    install("dev")
    of_dev = (tmp_path / ".venv").resolve()
    (tmp_path / "requirements.lock").write_text("# another version\n")
    install("run")
    output, _ = service.communicate("\n")

    assert output == "loaded\n"
    assert (tmp_path / ".venv").resolve() == of_dev


def test_set_up_uses_what_an_earlier_one_installed(install, tmp_path):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    install("run")
    first = (tmp_path / ".venv").resolve()
    (tmp_path / "requirements.lock").write_text("# another version\n")
    install("run")
    second = (tmp_path / ".venv").resolve()
    (tmp_path / "requirements.lock").write_text("# requirements.lock\n")
    install("run")

    assert first != second
    assert (tmp_path / ".venv").resolve() == first
    assert (first / "bin" / "python").exists()

"""Images for containers that need no registry: bases of Debian's packages, and the project's image."""

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hookmill import __version__
from tests.support.debian import program

ROOT: Final = Path(__file__).parents[2]
BUILD_SECONDS: Final = 900
BASE: Final = "localhost/debian-with-python"
"""A stand-in for the image of Python that the Dockerfile names: a minimal Debian with Debian's own Python."""
IMAGE: Final = f"localhost/hookmill:{__version__}"
_SOURCES: Final = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")


def debian_archive(archive: Path, packages: Sequence[str], *hooks: str):
    """Write a root file system of this system's release of Debian with these packages, from its usual sources."""
    mmdebstrap = program("mmdebstrap", package="mmdebstrap")
    command = [mmdebstrap, "--quiet", "--variant=apt", f"--include={','.join(packages)}"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
    command += [f"--customize-hook={hook}" for hook in hooks]
    if _AUTHORITIES.exists():
        # This machine may trust further authorities, such as that of a proxy through which the builder downloads.
        command.append(f"--customize-hook=upload {_AUTHORITIES} {_AUTHORITIES}")
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    sources = [path for path in _SOURCES if Path(path).exists()]
    # It starts a program of its own package.
    _run([*command, release, archive, *sources], PATH=f"{Path(mmdebstrap).parent}:/usr/sbin:/usr/bin:/sbin:/bin")


def import_archive(engine: Path, archive: Path, name: str, *changes: str):
    """Import a root file system as an image. Each change is an instruction of a Dockerfile."""
    _run([engine, "import", *(f"--change={change}" for change in changes), archive, name])


def build_image(engine: Path, directory: Path):
    """Build the image `IMAGE` with `scripts/image`, as an operator does. `directory` is that of the engine."""
    archive = directory / "python.tar"
    debian_archive(archive, ["python3", "python3-venv", "ca-certificates"])
    import_archive(engine, archive, BASE)
    archive.unlink()
    # The script tries Docker first.
    (directory / "docker").write_text("#!/bin/sh\nexit 1\n")
    (directory / "docker").chmod(0o755)
    options = ("--network=host", "--layers=false", f"--build-arg=PYTHON_IMAGE={BASE}", f"--tag={IMAGE}")
    _run([ROOT / "scripts" / "image", *options], PATH=f"{directory}:/usr/sbin:/usr/bin:/sbin:/bin")


def _run(command: Sequence[str | Path], **variables: str):
    process = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=BUILD_SECONDS, cwd=ROOT
    )
    assert process.returncode == 0, f"{command[0]}:\n{process.stdout[-4000:]}\n{process.stderr[-4000:]}"

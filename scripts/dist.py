"""Builds what a release publishes: `python -m scripts.dist`, or `make dist`.

`dist/` then contains the wheel, the sdist, a CycloneDX list of all components (an SBOM), and SHA256SUMS. The same
commit gives the same bytes, as long as Python's zlib compresses alike.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from hookmill import __version__

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "dist"
VENDORED: Final = ROOT / "src" / "hookmill" / "web" / "dashboard" / "static" / "VENDORED.md"
SECONDS_MAX: Final = 300
"""The time limit of each tool."""


def main() -> None:
    tags = _git("tag", "--points-at", "HEAD", "v*").split()
    for problem in (problem_of_checkout(ROOT), *map(problem_of_tag, tags)):
        if problem is not None:
            sys.exit(f"hookmill: {problem}")
    shutil.rmtree(TARGET, ignore_errors=True)
    files = write_distribution(TARGET, epoch=int(_git("log", "-1", "--format=%ct")))
    _validate(_component_list(TARGET))
    for path in files:
        print(path.relative_to(ROOT))


def problem_of_checkout(directory: Path) -> str | None:
    """What must change before this checkout can be built; None if nothing must."""
    if changes := _git("-C", str(directory), "status", "--porcelain"):
        return f"a distribution is built from a commit. Commit or remove these first:\n{changes}"
    return None


def problem_of_tag(tag: str) -> str | None:
    """What must change before this tag can be released; None if nothing must."""
    if tag != f"v{__version__}":
        return f"the tag {tag} does not name the version {__version__} of src/hookmill/__init__.py. Change one of them."
    if f"\n## {__version__}\n" not in (ROOT / "CHANGELOG.md").read_text():
        return f"CHANGELOG.md has no section `## {__version__}`. Add it, with what operators must do."
    return None


def write_distribution(target: Path, *, epoch: int) -> list[Path]:
    """Build all files of a release in the directory. `epoch`, in seconds since 1970, is the time that they contain."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    _run([sys.executable, "-m", "hatchling", "build", "-d", str(target)], environment)
    _component_list(target).write_text(json.dumps(_components(environment), indent=2, sort_keys=True) + "\n")
    files = sorted(target.iterdir())
    sums = target / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files))
    return [*files, sums]


def _validate(component_list: Path) -> None:
    """Ends this process unless the file is a valid CycloneDX document."""
    # Imported here, because it takes longer than everything else that the tests need of this module.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(component_list.read_text()):
        sys.exit(f"hookmill: {component_list.name} is not a valid CycloneDX document: {error}")


def _component_list(target: Path) -> Path:
    return target / f"hookmill-{__version__}.cdx.json"


def _components(environment: dict[str, str]) -> dict[str, Any]:
    """The components of the service: what requirements.lock pins, and the files of others in the package."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    # `main` validates the complete document.
    options = ["--pyproject", "pyproject.toml", "--output-reproducible", "--spec-version", "1.6", "--no-validate"]
    document: dict[str, Any] = json.loads(_run([str(tool), "requirements", *options, "requirements.lock"], environment))
    document["metadata"]["component"] |= {"version": __version__, "purl": f"pkg:pypi/hookmill@{__version__}"}
    for component in document["components"]:
        # It only repeats the line of the lock file.
        del component["description"]
    vendored = _vendored_components()
    document["components"] += vendored
    document["dependencies"] += [{"ref": component["bom-ref"]} for component in vendored]
    return document


def _vendored_components() -> list[dict[str, Any]]:
    """The rows of the table in VENDORED.md."""
    rows = re.findall(
        r"^\| `(\S+)` \| `(\S+)`, .* \| (\S+) \| (\S+), .* \| `(\w+)` \|$", VENDORED.read_text(), re.MULTILINE
    )
    return [
        {
            "type": "library",
            "bom-ref": f"vendored-{file}",
            "name": package,
            "version": version,
            "purl": f"pkg:npm/{package}@{version}",
            "licenses": [{"license": {"id": licence}}],
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for file, package, version, licence, digest in rows
    ]


def _git(*arguments: str) -> str:
    return _run(["git", "-c", "safe.directory=*", *arguments], dict(os.environ)).strip()


def _run(command: list[str], environment: dict[str, str]) -> str:
    """The output of the command. Ends this process if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    if done.returncode != 0:
        sys.exit(f"hookmill: `{' '.join(command)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()

"""Renders the Helm chart for the tests: `python -m scripts.chart`, or `make chart`. It needs `helm` 3 or newer.

The tests check what this writes to `tests/packaging/rendered/`, so that they don't need `helm`. Run it after each
change of the chart.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "deploy" / "helm" / "hookmill"
CASES: Final = ROOT / "tests" / "packaging" / "chart-values"
"""One file of values for each case."""
RENDERED: Final = ROOT / "tests" / "packaging" / "rendered"
KUBERNETES: Final = "1.33.0"
SECONDS_MAX: Final = 60


def main() -> None:
    helm = shutil.which("helm")
    if helm is None:
        sys.exit("hookmill: rendering the chart needs helm, version 3 or newer. Install it, or add it to PATH.")
    shutil.rmtree(RENDERED, ignore_errors=True)
    RENDERED.mkdir()
    for values in sorted(CASES.glob("*.yaml")):
        _run([helm, "lint", "--strict", "--quiet", str(CHART), "--values", str(values)])
        options = ["--namespace", "webhooks", "--kube-version", KUBERNETES, "--values", str(values)]
        manifests = _run([helm, "template", "hookmill", str(CHART), *options])
        target = RENDERED / values.name
        target.write_text(f"# By `make chart`, from {fingerprint(values)}\n{manifests}")
        print(target.relative_to(ROOT))


def fingerprint(values: Path) -> str:
    """A digest of the chart and a file of values."""
    files = [*sorted(path for path in CHART.rglob("*") if path.is_file()), values]
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _run(command: list[str]) -> str:
    """The output of the command. Ends this process if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    if done.returncode != 0:
        sys.exit(f"hookmill: `{' '.join(command)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()

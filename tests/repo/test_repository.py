"""Rules for the whole repository: its files, modules, imports and locked requirements."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from importlinter.cli import lint_imports
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "hookmill"
DOMAIN = SOURCE / "domain"
CLOCKS = {"now", "today", "utcnow"}

# Each is split, so that this file does not contain what it searches for.
REGISTRY_HOSTS = tuple(
    first + second
    for first, second in (
        ("py", "pi.org"),
        ("pypi.python", ".org"),
        ("python", "hosted.org"),
        ("npm", "js.org"),
        ("npm", "js.com"),
        ("crates", ".io"),
        ("golang", ".org"),
        ("maven", ".org"),
        ("deb.debian", ".org"),
        ("archive.ubuntu", ".com"),
    )
)
INDEX_OPTION = re.compile(rb"(?<![\w-])--(?:extra-" + rb")?index-" + rb"url\b")
PRIVATE_PATH = re.compile(rb"(?<![\w.~:/-])/(?:root|home|work|Users)/" + rb"\w")


def test_no_file_contains_the_host_of_a_package_registry():
    hosts = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)).encode())

    assert _files_with(hosts) == []


def test_no_file_contains_the_option_for_a_package_index():
    assert _files_with(INDEX_OPTION) == []


def test_no_file_contains_a_path_of_a_developers_machine():
    assert _files_with(PRIVATE_PATH) == []


def test_no_two_classes_share_a_name():
    places: dict[str, list[str]] = {}
    for path in _files():
        if path.suffix == ".py" and path.is_relative_to(SOURCE):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(f"{_name(path)}:{node.lineno}")

    assert places != {}
    assert {name: lines for name, lines in places.items() if len(lines) > 1} == {}


def test_domain_reads_no_clock():
    modules = [path for path in _files() if path.suffix == ".py" and path.is_relative_to(DOMAIN)]
    clock_reads = [
        f"{_name(path)}:{node.lineno}"
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS
    ]

    assert modules != []
    assert clock_reads == []


def test_import_contracts_are_kept(monkeypatch):
    monkeypatch.chdir(ROOT)

    assert lint_imports(config_filename=str(ROOT / ".importlinter"), no_cache=True, no_logo=True) == 0


def test_package_that_keeps_the_import_contracts_passes(tmp_path):
    report = _lint(
        tmp_path,
        {
            "cli.py": "import typer, rich\nfrom hookmill import app, definitions",
            "app.py": "import granian, opentelemetry, prometheus_client, uvloop\nfrom hookmill import settings, web",
            "settings.py": "import pydantic_settings",
            "web/__init__.py": "import fastapi\nfrom hookmill import ingress",
            "definitions.py": "import yaml\nfrom hookmill import management",
            "ingress.py": "from hookmill.store import rows",
            "management.py": "from hookmill import domain",
            "runs/__init__.py": "",
            "store/__init__.py": "from hookmill import domain",
            "store/rows.py": "import sqlalchemy, sqlite3",
            "store/objects.py": "import obstore",
            "domain/__init__.py": "import dataclasses, hashlib",
        },
    )

    assert _results(report) == {"KEPT"}


def test_every_import_contract_can_be_broken(tmp_path):
    report = _lint(
        tmp_path,
        {
            "web/__init__.py": "import granian, sqlalchemy, pydantic_settings",
            "ingress.py": "import cronsim, fastapi, h2, joserfc, mcp, obstore, typer, yaml\nfrom hookmill import runs",
            "runs/__init__.py": "",
            "management.py": "import httpcore2, markdown_it, opentelemetry, prometheus_client",
            "domain/__init__.py": "import time",
            "domain/filter.py": "from hookmill.domain import rule",
            "domain/rule.py": "from hookmill.domain import filter",
        },
    )

    assert _results(report) == {"BROKEN"}


@pytest.mark.parametrize(
    "files",
    [
        {"store/__init__.py": "from hookmill import ingress", "ingress.py": "", "domain/__init__.py": ""},
        {"runs/__init__.py": "from hookmill import ingress", "ingress.py": "", "domain/__init__.py": ""},
        {"surprise.py": "", "domain/__init__.py": ""},
    ],
    ids=["import of a higher layer", "import within a layer", "module without a layer"],
)
def test_contract_about_layers_is_broken(tmp_path, files):
    report = _lint(tmp_path, files)

    assert "Imports go down only, and modules of one layer don't import each other BROKEN" in report


def test_every_locked_package_is_pinned_with_its_hashes():
    for lock in ROOT.glob("requirements*.lock"):
        entries = re.split(r"\n(?! )", lock.read_text().strip())

        assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-build.lock"])
def test_development_lock_has_the_versions_of_the_other_locks(lock):
    assert _pins(lock).items() <= _pins("requirements-dev.lock").items()


def test_locks_meet_the_requirements_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]

    assert _unmet(project["project"]["dependencies"], "requirements.lock") == []
    assert _unmet(groups["build"], "requirements-build.lock") == []
    assert _unmet(groups["dev"] + groups["oracles"], "requirements-dev.lock") == []
    assert _unmet(groups["tools"], "requirements-tools.lock") == []


def _files() -> list[Path]:
    """All files that git tracks, and new ones that it does not ignore."""
    listing = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / name for name in sorted(set(names.split("\0"))) if name]
    return [path for path in files if path.is_file()]


def _files_with(pattern: "re.Pattern[bytes]") -> list[str]:
    matches = ((path, pattern.search(path.read_bytes())) for path in _files())
    return [f"{_name(path)}: {match.group().decode()}" for path, match in matches if match]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _lint(folder: Path, files: dict[str, str]) -> str:
    """The report of import-linter about a package with these files, with the project's contracts."""
    for name, text in {"__init__.py": "", **files}.items():
        path = folder / "hookmill" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    lint = str(Path(sys.executable).with_name("lint-imports"))
    options = ["--no-cache", "--no-logo", "--config", str(ROOT / ".importlinter")]
    environment = {"PYTHONPATH": str(folder), "COLUMNS": "300"}
    return subprocess.run([lint, *options], cwd=folder, env=environment, capture_output=True, text=True).stdout


def _results(report: str) -> set[str]:
    """The results of the contracts: KEPT, BROKEN, or both."""
    results = re.findall(r" (KEPT|BROKEN)\b", report)
    contracts = (ROOT / ".importlinter").read_text().count("[importlinter:contract:")
    assert len(results) == contracts, report
    return set(results)


def _pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def _unmet(wanted: Iterable[str], lock: str) -> list[str]:
    pins = _pins(lock)
    requirements = [Requirement(each) for each in wanted]
    return [str(each) for each in requirements if each.name not in pins or pins[each.name] not in each.specifier]

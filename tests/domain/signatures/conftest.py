"""Ends pytest with one message if the catalogue or a vector is invalid. Otherwise thousands of tests would fail."""

import json
from pathlib import Path

import pytest

from hookmill.domain.signatures import catalogue

VECTORS = Path(__file__).parent / "vectors"

REQUIRED_FIELDS = {"source", "proof", "secret", "headers", "url", "at", "delivery_id", "expect"}


def pytest_configure() -> None:
    try:
        names = [scheme.name for scheme in catalogue.schemes()]
    except catalogue.BrokenCatalogue as fault:
        pytest.exit(f"The catalogue is invalid. {fault}", returncode=1)
    for name in names:
        if (problem := _problem_of_vector(name)) is not None:
            pytest.exit(f"tests/domain/signatures/vectors/{name}.json: {problem}. See README.md there.", returncode=1)


def _problem_of_vector(name: str) -> str | None:
    try:
        record = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "the file is missing, so the scheme has no vector"
    except ValueError as fault:
        return f"the file is not JSON: {fault}"
    missing = sorted(REQUIRED_FIELDS - record.keys())
    return f"fields are missing: {', '.join(missing)}" if missing else None

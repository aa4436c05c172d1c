"""A catalogue that can't be read, or a vector, is one message and not thousands of failures."""

import json
from pathlib import Path

import pytest

from hookmill.domain.signatures import catalogue

VECTORS = Path(__file__).parent / "vectors"

FIELDS = {"source", "proof", "secret", "headers", "url", "at", "delivery_id", "expect"}


def pytest_configure() -> None:
    try:
        names = [scheme.name for scheme in catalogue.schemes()]
    except catalogue.BrokenCatalogue as fault:
        pytest.exit(f"The catalogue can't be read. {fault}", returncode=1)
    for name in names:
        if (problem := _problem(name)) is not None:
            pytest.exit(f"tests/domain/signatures/vectors/{name}.json: {problem} (README.md there)", returncode=1)


def _problem(name: str) -> str | None:
    try:
        record = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "the scheme has no vector; write this file"
    except ValueError as fault:
        return f"it is not JSON: {fault}"
    missing = sorted(FIELDS - record.keys())
    return f"it lacks {', '.join(missing)}" if missing else None

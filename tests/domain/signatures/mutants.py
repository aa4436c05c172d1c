"""Mutants: bugs in the verifier, one at a time. For each of them, at least one test must fail."""

import importlib
import importlib.util
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import pytest

PACKAGE: Final = "hookmill.domain.signatures"
TESTS: Final = tuple(
    f"tests.domain.signatures.{name}"
    for name in ("test_encoding", "test_key", "test_verify", "test_doctor", "test_vectors")
)
# Exit codes of the child process.
KILLED: Final = 7
SURVIVED: Final = 8
FAULTY: Final = 9
"""The mutant could not be loaded, so it shows nothing."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: `correct` in the source of a module is replaced by `wrong`."""

    module: str
    correct: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.module}: {self.correct} -> {self.wrong}"


MUTANTS: Final = (
    Mutant("verify", "if not compiled.used_headers.isdisjoint(request.conflicting_headers):", "if False:"),
    Mutant("verify", "    if not candidates:\n", "    if False:\n"),
    Mutant("verify", "if signed_at is None or", "if True or"),
    Mutant("verify", "if sum(map(len, signatures)) > SIGNATURE_BYTES_MAX:", "if False:"),
    Mutant("verify", "if len(signatures) > CANDIDATES_MAX:", "if False:"),
    Mutant("verify", "CANDIDATES_MAX: Final = 16", "CANDIDATES_MAX: Final = 17"),
    Mutant("verify", "for text in signatures if text.startswith(prefix)]", "for text in signatures]"),
    Mutant("verify", "if separator and name == compiled.entry_name:", "if separator:"),
    Mutant("verify", "timestamps.pop() if len(timestamps) == 1 else None", "timestamps.pop() if timestamps else None"),
    Mutant("verify", "return parts[1:]", "return parts"),
    Mutant(
        "verify",
        "    if not text:\n        return Failure.NO_TIMESTAMP",
        "    if not text:\n        return 0",
    ),
    Mutant(
        "verify",
        "    if content is None and not compiled.content_contains_secret:",
        "    content = content or b''\n    if False:",
    ),
    Mutant(
        "verify",
        "return Failure.MISMATCH if fingerprint_source is None else fingerprint_source",
        "return fingerprint_source or b''",
    ),
    Mutant("verify", "if hmac.compare_digest(expected, candidate):", "if expected.startswith(candidate[:4]):"),
    Mutant("verify", "if hmac.compare_digest(expected, candidate):", "if True:"),
    Mutant(
        "verify",
        "return hmac.digest(hmac_key, content, compiled.digest)",
        "return hmac.digest(hmac_key, content, 'sha256')",
    ),
    Mutant("verify", "if compiled.key_is_derived:", "if False:"),
    Mutant(
        "verify",
        "    except InvalidSignature:\n        return False",
        "    except InvalidSignature:\n        return True",
    ),
    Mutant(
        "verify",
        "return digest is not None and hmac.compare_digest(digest, sha256(request.body)",
        "return digest is not None or (digest, request",
    ),
    Mutant("verify", "if len(values) == 1 else None", "if values else None"),
    Mutant("verify", "if age > timestamp.tolerance_seconds:", "if age >= timestamp.tolerance_seconds:"),
    Mutant("verify", "if age > timestamp.tolerance_seconds:", "if age > timestamp.tolerance_seconds + 1:"),
    Mutant("verify", "if -age > timestamp.tolerance_seconds else None", "if False else None"),
    Mutant("verify", "    if len(parts) != 3:\n", "    if len(parts) < 3:\n"),
    Mutant("verify", 'or fields.get("alg") != "HS256" ', ""),
    Mutant("verify", ' or "crit" in fields', ""),
    Mutant(
        "verify",
        'if digest is None or (rule.issuer is not None and claims.get("iss") != rule.issuer):',
        "if digest is None:",
    ),
    Mutant("verify", "if not hmac.compare_digest(digest, sha256(body).digest()):", "if False:"),
    Mutant("verify", "if rule.requires_expiry and expires_at is None:", "if False:"),
    Mutant("verify", "now - expires_at > JWT_LEEWAY_SECONDS", "now - expires_at > 10 * JWT_LEEWAY_SECONDS"),
    Mutant(
        "encoding",
        r'_strict_decoder(rf"[0-9a-fA-F]{repetition}\Z", binascii.unhexlify)',
        r'_strict_decoder(rf"[0-9a-fA-F]{repetition}", lambda text: binascii.unhexlify(text[:2 * (size or 0)]))',
    ),
    Mutant("encoding", r"[0-9a-fA-F]{repetition}\Z", r"[0-9a-f]{repetition}\Z"),
    Mutant("encoding", 'rb"[0-9]{1,15}\\Z"', 'rb"\\s*[0-9]{1,15}\\s*\\Z"'),
    Mutant("encoding", "else int(text) // 1000", "else int(text)"),
    Mutant("encoding", '60 if sign == b"-" else 60', '60 if sign == b"+" else 60'),
    Mutant("reading", 'and step == "0" and len(value) == 1:', 'and step == "0" and value:'),
    Mutant("reading", 'return b"true" if value else b"false"', "return b'%d' % value"),
    Mutant("reading", "if len(names) > headers_max or any(", "if any("),
    Mutant("reading", "or name in conflicting", ""),
    Mutant("key", "if len(key) < max(1, rule.key_bytes_min):", "if False:"),
    Mutant("key", "and key.key_size >= RSA_BITS_MIN", ""),
)


def is_killed(mutant: Mutant) -> bool:
    """Whether a test fails with this bug. The tests run in a child process."""
    child = os.fork()
    if child == 0:
        try:
            _load(mutant)
            os._exit(_run_tests())
        finally:
            os._exit(FAULTY)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {KILLED, SURVIVED}, f"{mutant}: the child process ended with {code}"
    return code == KILLED


def _run_tests() -> int:
    for name in TESTS:
        try:
            module = importlib.import_module(name)
            for test in _tests(module):
                test()
        except (Exception, pytest.fail.Exception):
            return KILLED
    return SURVIVED


def _load(mutant: Mutant) -> None:
    """Replace the module by the mutant, and forget every module that has imported it."""
    for name in [name for name in sys.modules if name.startswith((PACKAGE, *TESTS, "tests.domain.signatures.vector"))]:
        del sys.modules[name]
    full_name = f"{PACKAGE}.{mutant.module}"
    spec = importlib.util.find_spec(full_name)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    mutated = source.replace(mutant.correct, mutant.wrong, 1)
    if mutated == source:
        raise ValueError(f"{mutant.module} does not contain {mutant.correct!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module
    exec(compile(mutated, spec.origin, "exec"), module.__dict__)


def _tests(module: Any) -> Iterator[Callable[[], None]]:
    """Every test of the module with each of its cases, except tests with fixtures and property tests."""
    for name, test in vars(module).items():
        if not name.startswith("test_") or not isinstance(test, FunctionType) or hasattr(test, "hypothesis"):
            continue
        for case in _cases(test):
            if inspect.signature(test).parameters.keys() == case.keys():
                yield partial(test, **case)


def _cases(test: FunctionType) -> Iterator[dict[str, Any]]:
    """Every combination of the arguments in the test's `pytest.mark.parametrize`."""
    tables = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names, cases = mark.args
            tables.append(
                [{names: case} if isinstance(names, str) else dict(zip(names, case, strict=True)) for case in cases]
            )
    for combination in itertools.product(*tables):
        yield {name: value for arguments in combination for name, value in arguments.items()}

"""Secrets are compared in constant time, so that the time reveals nothing about a guess."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "hookmill"
SECRET_NAMES = re.compile(
    r"secret|token|signature|credential|password|digest|bearer|reveal|mac(?![a-z])", re.IGNORECASE
)
VARIABLE_TIME = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)

HARMLESS = {
    ("webhook.py", "lowered in _CREDENTIAL_HEADERS"): "names of headers",
    ("webhook.py", "self.signature_scheme == GENERIC_SCHEME"): "names of signature schemes",
    ("webhooks.py", "source['auth_mode'] != AuthMode.SIGNATURE"): "names of modes",
    ("webhooks.py", "name not in SIGNATURE_FIELDS"): "names of fields",
    ("webhook.py", "header.lower().encode() in scheme.compiled.signature_or_signed_headers"): "names of headers",
    ("routes.py", "name in _CREDENTIAL_HEADERS"): "the same",
    ("ingress.py", "b'/' in token"): "a search for a slash in the sent token, without a secret",
    ("secrets.py", "use.secret_id == secret_id"): "ids of secrets, which are not secret",
    ("secrets.py", "use.secret_id == secret.id"): "the same",
    ("webhooks.py", "use.secret_id == secret_id"): "the same",
    ("secret.py", "webhook['secret_name'] == secret_name"): "names of secrets, which every manager may read",
    ("secrets.py", "webhook.secret_name == secret.name"): "the same",
    ("live.py", "delivery.identity_digest in self.identity_digests"): "the ids of events, which the log shows",
    (
        "live.py",
        "other.context.session_token == watcher.context.session_token",
    ): "verified tokens that the service generated, so no client can guess by comparison",
    (
        "applying.py",
        "expected_digest not in (None, applied_plan.digest)",
    ): "the digest of a plan, which its caller read",
    ("planning.py", "change.key != 'secretName'"): "keys of a definition file",
    ("probe.py", "secret_name == f'{SECRET_NAME_PREFIX}{match[1].upper()}'"): "names of secrets",
    ("secret.py", "value.reveal() not in {'.', '..'}"): "a new secret during its creation",
    ("restoring.py", "record.table in digests"): "names of tables",
    ("restoring.py", "digest.result() != written"): "a digest of restored rows",
    ("recomputed.py", "digest != row['identity_digest']"): "the ids of events, which the log shows",
    ("route.py", "requirement not in (require_nothing, require_attempt_token)"): "what a route requires",
    ("openapi.py", "operation.requirement not in (require_nothing, require_attempt_token)"): "the same",
}
"""Comparisons that only have a secret's name, and the values that they compare. Their time reveals no secret."""


def test_no_secret_is_compared_with_an_operator():
    modules = sorted(SOURCE.rglob("*.py"))
    comparisons = {(module.name, text) for module in modules for text in suspicious(module.read_text())}

    assert modules != []
    assert comparisons - HARMLESS.keys() == set()


@pytest.mark.parametrize(
    "code",
    [
        "if sent == secret: pass",
        "if self._token != sent: pass",
        "ok = webhook.secret.reveal() == sent",
        "ok = sha256(sent).digest() == known",
        "ok = hexdigest(sent) == known",
        "ok = signature in signatures",
        "ok = sent not in webhook.secrets",
        "ok = sent[7:] == tokens[0]",
        "ok = first == second == credential",
        "ok = (sent or b'') == (token or b'')",
        "ok = mac(sent) == known",
    ],
)
def test_comparison_of_a_secret_is_detected(code):
    assert list(suspicious(code)) != []


@pytest.mark.parametrize(
    "code",
    [
        "ok = hmac.compare_digest(sent, secret)",
        "ok = secret is None",
        "ok = len(token) == 43",
        "ok = name == value",
        "ok = machine == other",
    ],
)
def test_harmless_comparison_is_not_reported(code):
    assert list(suspicious(code)) == []


def suspicious(code: str) -> Iterator[str]:
    """The comparisons whose time depends on the values, and of which one side has a secret's name."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Compare) or not any(isinstance(each, VARIABLE_TIME) for each in node.ops):
            continue
        sides = (node.left, *node.comparators)
        if any(SECRET_NAMES.search(name) for side in sides for name in names(side)):
            yield ast.unparse(node)


def names(side: ast.expr) -> Iterator[str]:
    """The names of a compared value. A call has the name of its function, so a length does not count as a secret."""
    match side:
        case ast.Name(id=name):
            yield name
        case ast.Attribute(attr=name):
            yield name
        case ast.Call(func=func):
            yield from names(func)
        case ast.Subscript(value=value) | ast.Starred(value=value) | ast.Await(value=value):
            yield from names(value)
        case ast.BinOp(left=left, right=right):
            yield from names(left)
            yield from names(right)
        case ast.BoolOp(values=values):
            for value in values:
                yield from names(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            for part in parts:
                yield from names(part)

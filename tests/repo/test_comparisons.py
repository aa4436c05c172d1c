"""No secret is compared in a time that tells how much of a guess was right."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "hookmill"
SECRETIVE = re.compile(r"secret|token|signature|credential|password|digest|bearer|reveal|mac(?![a-z])", re.IGNORECASE)
SHORT_CIRCUITING = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)

HARMLESS = {
    ("webhook.py", "lowered in _CREDENTIAL_HEADERS"): "names of headers",
    ("compatibility.py", "header.lower().encode() in signature_or_signed_headers(scheme)"): "names of headers",
    ("routes.py", "name in _CREDENTIAL_HEADERS"): "the same",
    ("ingress.py", "b'/' in token"): "looks for a slash in what was sent, beside no secret",
    ("secrets.py", "use.secret_id == secret_id"): "names of secrets, which everybody may know who manages them",
    ("secrets.py", "use.secret_id == secret.id"): "the same",
    ("webhooks.py", "use.secret_id == secret_id"): "the same",
    ("secret.py", "webhook.secret_name == secret_name"): "the same",
    ("webhooks.py", "existing.name == secret_name"): "the same",
    ("secrets.py", "webhook.secret_name == secret.name"): "the same",
    ("live.py", "delivery.identity_digest in self.identity_digests"): "events' ids, which the log shows",
    (
        "live.py",
        "other.context.session_token == watcher.context.session_token",
    ): "tokens that the service generated and has verified: nobody can choose one to compare",
    ("planning.py", "change.key != WebhookKey.SECRET_NAME"): "keys of a definition file",
    ("rendering.py", "WebhookKey.SIGNATURE_SCHEME in settings"): "the same",
    ("secret.py", "value.reveal() not in {'.', '..'}"): "a secret at the moment when it is made",
}
"""Comparisons of what only sounds secret, each with the reason why its time tells nothing."""


def test_no_secret_is_compared_with_an_operator():
    modules = sorted(SOURCE.rglob("*.py"))
    found = {(module.name, text) for module in modules for text in suspicious(module.read_text())}

    assert modules != []
    assert found - HARMLESS.keys() == set()


def test_nothing_is_excused_that_is_no_longer_there():
    found = {(module.name, text) for module in SOURCE.rglob("*.py") for text in suspicious(module.read_text())}

    assert HARMLESS.keys() - found == set()


@pytest.mark.parametrize(
    "code",
    [
        "if given == secret: pass",
        "if self._token != given: pass",
        "ok = webhook.secret.reveal() == given",
        "ok = sha256(given).digest() == known",
        "ok = hexdigest(given) == known",
        "ok = signature in signatures",
        "ok = given not in webhook.secrets",
        "ok = given[7:] == tokens[0]",
        "ok = first == second == credential",
        "ok = (given or b'') == (token or b'')",
        "ok = mac(given) == known",
    ],
)
def test_a_comparison_of_a_secret_is_noticed(code: str):
    assert list(suspicious(code)) != []


@pytest.mark.parametrize(
    "code",
    [
        "ok = hmac.compare_digest(given, secret)",
        "ok = secret is None",
        "ok = len(token) == 43",
        "ok = name == value",
        "ok = machine == other",
    ],
)
def test_a_harmless_comparison_is_let_pass(code: str):
    assert list(suspicious(code)) == []


def suspicious(code: str) -> Iterator[str]:
    """The comparisons whose time depends on what is equal, and one side of which has a secret's name."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Compare) or not any(isinstance(each, SHORT_CIRCUITING) for each in node.ops):
            continue
        sides = (node.left, *node.comparators)
        if any(SECRETIVE.search(name) for side in sides for name in names(side)):
            yield ast.unparse(node)


def names(side: ast.expr) -> Iterator[str]:
    """What the compared value is called. A length, and a value computed from arguments, go by their function's name."""
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

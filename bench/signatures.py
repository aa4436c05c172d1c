"""Measures filters and the verification of signatures on one core, without a service."""

from __future__ import annotations

import json
import os
import timeit
from collections.abc import Callable, Iterator

from bench.load import LoadFailed
from bench.table import Row
from hookmill import app
from hookmill.domain.filters import CompiledFilter, compile_filter
from hookmill.domain.payload import Parsed, parse
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.sign import ENTROPY_BYTES, sign
from hookmill.domain.signatures.verify import Verified, verify
from tests.support.example_keys import example_pair

SCHEME_OF_PRIMITIVE = {
    "hmac-sha256": "github",
    "hmac-sha256, header with a list and a timestamp (Stripe)": "stripe",
    "hmac-sha256, signed id, time and body (Standard Webhooks)": "standard_webhooks",
    "hmac-sha1": "vercel",
    "hmac-sha512": "paystack",
    "token": "hugging_face",
    "jwt-hs256": "netlify",
    "hash-sha1": "cloudinary",
    "ed25519": "discord",
    "ecdsa-p256-sha256": "sendgrid",
    "rsa-pkcs1-sha256": "wise",
}
"""A scheme for each primitive, and for the formats of a signature that take longest to parse."""
BODY_SIZES = (1_000, 262_144)


def measure_filters() -> Iterator[Row]:
    """How often one core evaluates a filter with three conditions, one of them nested, for a parsed body of 1 KB."""
    compiled = compile_filter({"kind": ["matching"], "number": {"not_in": [1, 2]}, "repository": {"private": [False]}})
    repository = {"name": "hookmill", "private": False}
    body = {"kind": "matching", "number": 7, "repository": repository, "text": "x" * 900}
    parsed = parse(json.dumps(body).encode())
    assert isinstance(compiled, CompiledFilter)
    assert isinstance(parsed, Parsed)
    if not compiled.matches(parsed):
        raise LoadFailed("The filter of the benchmark does not match its body.")
    yield Row(what="Filter evaluations, one core", per_second=_per_second(lambda: compiled.matches(parsed)))


def measure_signatures() -> Iterator[Row]:
    """How often one core verifies a signed body."""
    for size in BODY_SIZES:
        body = json.dumps({"text": "x" * (size - len('{"text": ""}'))}).encode()
        for primitive, scheme in SCHEME_OF_PRIMITIVE.items():
            # One whole core, so that the column "server µs each" shows the time of one verification.
            rate = _verifications_per_second(scheme, body)
            yield Row(what=f"Verification, {primitive}, {size // 1000} KB", per_second=rate, server_cores=1.0)


def _verifications_per_second(scheme_name: str, body: bytes) -> float:
    scheme = catalogue.find(scheme_name)
    pair = example_pair(scheme, os.urandom(ENTROPY_BYTES))
    at_us = app.now_us()
    signed = sign(scheme, pair.sender_secret, body, "https://hooks.example/webhooks/w/wh_bench", at_us)
    headers = {name.lower().encode(): value.encode() for name, value in signed.headers}
    request = SignedRequest(headers, frozenset(), signed.body, signed.url)
    keys = [prepare_key(scheme, pair.webhook_secret)]
    if not isinstance(verify(scheme, keys, request, at_us), Verified):
        raise LoadFailed(f"The benchmark's own signature of {scheme_name} does not verify.")
    return _per_second(lambda: verify(scheme, keys, request, at_us))


def _per_second(function: Callable[[], object]) -> float:
    timer = timeit.Timer(function)
    number = max(1, timer.autorange()[0] // 4)
    return number / min(timer.repeat(repeat=5, number=number))

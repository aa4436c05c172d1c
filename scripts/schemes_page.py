"""Writes docs/schemes.md from the catalogue: `python -m scripts.schemes_page`."""

from pathlib import Path
from typing import Final

from hookmill.domain.signatures.catalogue import schemes
from hookmill.domain.signatures.description import covered, event_in_words, facts
from hookmill.domain.signatures.scheme import Scheme

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "schemes.md"

INTRODUCTION: Final = """\
# Signature schemes

{count} providers' ways to sign, under {names} names. Written by `python -m scripts.schemes_page`; the catalogue is
`src/hookmill/domain/signatures/catalogue.toml`.

```
hookmill webhook create NAME --mode signature --scheme SCHEME
```

**Covers** says what nobody can change without the secret. Where the body is not covered, whoever sees one delivery
can send any other body. Where no time is covered, a captured delivery can be sent again: with its own event id it
is a Duplicate, and where the id is not covered either, it can come under a new one. Where a section says after how
many seconds a signature is refused, that ends too: until then, a captured delivery is a Duplicate under whatever
id.

**Proof** says why an entry can be trusted: with `sdk` the provider's own SDK agrees with it, with `library` an
independent one (those from PyPI are asked in every run of the tests), with `vector` a published example. `none` is
an entry built from the provider's description alone: **experimental**.

A sender that isn't here and signs with an HMAC: scheme `hmac`, which you fill in. Its fields are `header`,
`prefix`, `algorithm` (sha1, sha256, sha512), `encoding` (hex, base64, base64url), `secret` (how it becomes the key:
text, base64, hex), `content` (what is signed, with `{{body}}`, `{{ts}}`, `{{url}}` and `{{header:NAME}}`),
`timestamp_header`, `timestamp_unit` (s, ms, iso8601) and `tolerance_seconds`:

```
hookmill webhook create NAME --mode signature --scheme hmac \\
  --signature '{{"header": "X-Signature", "prefix": "sha256="}}' --secret-from-stdin
```

| Scheme | Provider | Signed with | Covers | Proof |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    known = schemes()
    names = sum(1 + len(scheme.aliases) for scheme in known)
    rows = "".join(_row(scheme) for scheme in known)
    return INTRODUCTION.format(count=len(known), names=names) + rows + "\n" + "\n".join(_section(one) for one in known)


def _row(scheme: Scheme) -> str:
    proof = "none: experimental" if scheme.experimental else scheme.proof.kind.value
    name = f"[`{scheme.name}`](#{scheme.name})"
    return f"| {name} | {scheme.title} | {scheme.algorithm.value} | {covered(scheme)} | {proof} |\n"


def _section(scheme: Scheme) -> str:
    lines = [f"## {scheme.name}", "", f"{scheme.title}, as described at <{scheme.docs}>."]
    if scheme.aliases:
        lines += [
            "",
            "Signs for these too, under their names: " + ", ".join(f"`{one}`" for one in scheme.aliases) + ".",
        ]
    for alias in scheme.alias_events:
        lines += ["", f"`{alias}`: the event type is the {event_in_words(scheme, alias)}."]
    lines += ["", *(f"{number}. {step}" for number, step in enumerate(scheme.setup, 1))]
    lines += ["", *(f"- {fact}" for fact in facts(scheme)), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.name} is written.")

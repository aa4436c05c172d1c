"""Writes docs/schemes.md from the catalogue: `python -m scripts.schemes_page`."""

from pathlib import Path
from typing import Final

from hookmill.domain.signatures.catalogue import schemes
from hookmill.domain.signatures.description import covered, event_in_words, facts
from hookmill.domain.signatures.scheme import Scheme

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "schemes.md"

INTRODUCTION: Final = """\
# Signature schemes

Look up here how to set up a provider, what its signature covers, and how the verification is
proven. There are {count} schemes under {names} names. For example, GitHub:

```sh
hookmill scheme show github
hookmill webhook create repo --mode signature --scheme github
```

**Covers** lists what nobody can change without the secret.

- Where the body is not covered, an attacker who sees one delivery can send any other body.
- Where no time is covered, an attacker can send a captured delivery again. With the same event id, the
  copy is a Duplicate. If the id is not covered either, the attacker can change it, and the copy is
  accepted.
- Replay protection: where a scheme refuses old signatures, its section gives the seconds. Until
  then, a captured delivery is a Duplicate under any id; after that, it is refused.

**Proof** says why you can trust an entry:

| Proof | Meaning |
| --- | --- |
| `sdk` | the provider's own SDK agrees with it |
| `library` | an independent library agrees with it |
| `vector` | a published example agrees with it |
| `none` | **experimental**: built from the provider's description alone |

The tests run the SDKs and libraries that are Python packages.

**Another sender that signs with an HMAC** needs the scheme `hmac`, in which you describe the
signature:

```sh
hookmill webhook create NAME --mode signature --scheme hmac \\
  --signature '{{"header": "X-Signature", "prefix": "sha256="}}' --secret-from-stdin
```

| Field | Meaning |
| --- | --- |
| `header`, `prefix` | where the signature is, and what precedes it |
| `algorithm` | sha1, sha256 or sha512 |
| `encoding` | hex, base64 or base64url |
| `secret` | how the secret becomes the key: text, base64 or hex |
| `content` | the signed content, with `{{body}}`, `{{ts}}`, `{{url}}` and `{{header:NAME}}` |
| `timestamp_header`, `timestamp_unit` | where the time is; its unit is s, ms or iso8601 |
| `tolerance_seconds` | a signature is refused if its time is further away, past or future |

`python -m scripts.schemes_page` writes this page from
`src/hookmill/domain/signatures/catalogue.toml`.

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
    if scheme.aliases_without_event:
        lines += ["", ", ".join(f"`{one}`" for one in scheme.aliases_without_event) + ": no event type."]
    lines += ["", *(f"{number}. {step}" for number, step in enumerate(scheme.setup, 1))]
    lines += ["", *(f"- {fact}" for fact in facts(scheme)), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.name} is written.")

"""Writes docs/schemes.md and the names in the JSON Schema of webhooks: `python -m scripts.schemes_page`."""

import json
from pathlib import Path
from typing import Final

from hookmill.domain.signatures.catalogue import schemes
from hookmill.domain.signatures.description import covered_parts, event_in_words, properties_in_words
from hookmill.domain.signatures.rule import allowed_names
from hookmill.domain.signatures.scheme import Scheme

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "schemes.md"
SCHEMA: Final = ROOT / "src" / "hookmill" / "definitions" / "schemas" / "webhook.schema.json"

INTRODUCTION: Final = """\
# Signature schemes

Look up here how to set up a provider, what its signature covers, and how the verification is
proven. There are {count} schemes under {names} names. For example, GitHub:

```sh
hookmill scheme show github
hookmill webhook create repo --mode signature --scheme github
```

In the table below, the column **Covers** lists what nobody can change without the secret.

- If a scheme does not cover the body, an attacker who sees one delivery can send any other body.
- Unless the scheme limits the age of a signature, an attacker can send a captured delivery again.
  With the same event id, the copy is a Duplicate. If the scheme does not cover the event id, the
  attacker can change it, and the copy is accepted.
- Replay protection: some schemes limit the age of a signature. Their sections give the limit. Until
  the signature reaches this age, a captured delivery that is sent again is a Duplicate, whatever
  its event id. After that, it is refused.

**Proof** says why you can trust a scheme's entry in the catalogue:

| Proof | Meaning |
| --- | --- |
| `sdk` | the provider's own SDK agrees with the entry |
| `library` | an independent library agrees with the entry |
| `vector` | a published example agrees with the entry |
| `none` | **experimental**: the entry follows the provider's description, and nothing else confirms it |

The tests run the SDKs and libraries that are Python packages.

In the steps of a provider, *there* means at the provider, and *here* means in Hookmill. To enter a
secret in Hookmill, use `hookmill webhook rotate NAME --secret-from-stdin`, or the webhook's page in
the dashboard.

**For any other sender that signs with an HMAC**, use the scheme `hmac`, and describe how the sender
signs:

```sh
hookmill webhook create NAME --mode signature --scheme hmac \\
  --signature '{{"header": "X-Signature", "prefix": "sha256="}}' --secret-from-stdin
```

| Field | Meaning |
| --- | --- |
| `header`, `prefix` | the header with the signature, and the text that precedes the signature in it |
| `algorithm` | the hash function: sha1, sha256 or sha512 |
| `encoding` | the encoding of the signature: hex, base64 or base64url |
| `secret` | how the key is made from the secret: text (unchanged), or decoded from base64 or hex |
| `content` | the signed content, with `{{body}}`, `{{ts}}`, `{{url}}` and `{{header:NAME}}` |
| `timestamp_header`, `timestamp_unit` | the header with the signed time, and the unit of this time: s, ms or iso8601 |
| `tolerance_seconds` | the maximum age of a signature in seconds; the same limit applies to a time in the future |

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
    return f"| {name} | {scheme.title} | {scheme.algorithm.value} | {covered_parts(scheme)} | {proof} |\n"


def _section(scheme: Scheme) -> str:
    lines = [f"## {scheme.name}", "", f"{scheme.title}, as described at <{scheme.docs}>."]
    if scheme.aliases:
        lines += [
            "",
            "Aliases of this scheme, for providers that sign in the same way: "
            + ", ".join(f"`{one}`" for one in scheme.aliases)
            + ".",
        ]
    for alias in scheme.alias_events:
        lines += ["", f"With `{alias}`, the event type is in the {event_in_words(scheme, alias)}."]
    if scheme.aliases_without_event:
        names = " and ".join(f"`{one}`" for one in scheme.aliases_without_event)
        lines += ["", f"With {names}, deliveries have no event type."]
    lines += ["", *(f"{number}. {step}" for number, step in enumerate(scheme.setup, 1))]
    lines += ["", *(f"- {sentence}" for sentence in properties_in_words(scheme)), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["signatureScheme"]["enum"] = list(allowed_names())
    SCHEMA.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    print(f"{PAGE.name} and {SCHEMA.name} are written.")

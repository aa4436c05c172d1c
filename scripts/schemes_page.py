"""Writes docs/schemes.md and the names in the JSON Schema of webhooks: `python -m scripts.schemes_page`."""

import json
import textwrap
from pathlib import Path
from typing import Final

from hookmill.domain.signatures.catalogue import schemes
from hookmill.domain.signatures.description import covered_parts
from hookmill.domain.signatures.rule import allowed_names
from hookmill.domain.signatures.scheme import Scheme

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "schemes.md"
SCHEMA: Final = ROOT / "src" / "hookmill" / "definitions" / "schemas" / "webhook.schema.json"

INTRODUCTION: Final = """\
# Signature schemes

Look up here what a provider's signature covers, and how the verification is proven. For example,
GitHub, which is one of {count} schemes:

```sh
hookmill scheme show github
hookmill webhook create repo --mode signature --scheme github
```

`hookmill scheme show NAME` and the dashboard print the steps to set up the provider, the header of
the signature, the provider's own description, and the exact source of the proof.

## What each signature covers

The column **Covers** lists what nobody can change without the secret.

- If a scheme does not cover the body, an attacker who sees one delivery can send any other body.
- Unless the scheme has an **age limit**, an attacker can send a captured delivery again. With the
  same event id, the copy is a Duplicate. If the scheme does not cover the event id, the attacker
  can change it, and the copy is accepted.
- Replay protection: with an age limit, a captured delivery that is sent again is a Duplicate until
  its signature reaches this age, whatever its event id. After that, it is refused. The same limit
  applies to a signed time in the future. *Advised* is a limit that the provider recommends, and
  that Hookmill does not apply.

**Proof** says what agrees with the scheme's entry in the catalogue: the provider's own SDK (`sdk`),
an independent library (`library`) or a published example (`vector`). An **experimental** entry
follows the provider's description, and nothing else confirms it. The tests run the SDKs and
libraries that are Python packages.

| Scheme | Provider | Signed with | Covers | Age limit | Proof |
| --- | --- | --- | --- | --- | --- |
{schemes}
**Aliases** are names for providers that sign in the same way as the scheme:

| Scheme | Aliases |
| --- | --- |
{aliases}
**Handshakes** are signed challenges to a new URL. Hookmill answers them if the webhook's handshakes
are on (`--handshakes`). These schemes have them:
{handshakes}.

## Event ids and event types

`header:NAME` is a header of the request, and `json:PATH` is a field of its body. An event type that
is not signed is only the sender's claim. Schemes that are not listed send neither.

| Scheme | Event id | Event type |
| --- | --- | --- |
{places}
## What to know about each provider

{notes}
## Other senders

For any other sender that signs with an HMAC, use the scheme `hmac`, and describe how the sender
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
"""


def page() -> str:
    """The whole page."""
    known = schemes()
    return INTRODUCTION.format(
        count=len(known),
        schemes="".join(_row(scheme) for scheme in known),
        aliases="".join(_aliases(scheme) for scheme in known if scheme.aliases),
        handshakes=", ".join(f"`{scheme.name}`" for scheme in known if scheme.handshake is not None),
        places="".join(_places(scheme) for scheme in known),
        notes="".join(_notes(scheme) for scheme in known if scheme.notes),
    )


def _row(scheme: Scheme) -> str:
    proof = "experimental" if scheme.experimental else scheme.proof.kind.value
    cells = (f"`{scheme.name}`", scheme.title, scheme.algorithm.value, covered_parts(scheme), _age_limit(scheme), proof)
    return f"| {' | '.join(cells)} |\n"


def _age_limit(scheme: Scheme) -> str:
    timestamp = scheme.timestamp
    if timestamp is None or timestamp.tolerance_seconds is None:
        return "no"
    return (
        f"{timestamp.tolerance_seconds} s" if timestamp.enforced else f"no (advised: {timestamp.tolerance_seconds} s)"
    )


def _aliases(scheme: Scheme) -> str:
    return f"| `{scheme.name}` | {', '.join(f'`{alias}`' for alias in scheme.aliases)} |\n"


def _places(scheme: Scheme) -> str:
    """The rows of the scheme, and of its aliases whose event type is in another place."""
    delivery_id = ", else ".join(f"`{source}`" for source in scheme.delivery_id) or "–"
    differing = [alias for alias in scheme.aliases if scheme.event_for(alias) != scheme.event]
    rows = [(name, delivery_id, _event(scheme, name)) for name in (scheme.name, *differing)]
    return "".join(f"| `{name}` | {' | '.join(places)} |\n" for name, *places in rows if places != ["–", "–"])


def _event(scheme: Scheme, name: str) -> str:
    event = scheme.event_for(name)
    if event is None:
        return "–"
    return f"`{event.source}`, {'signed' if scheme.covers_event(name) else 'not signed'}"


def _notes(scheme: Scheme) -> str:
    text = f"- `{scheme.name}`: {' '.join(scheme.notes)}"
    return textwrap.fill(text, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["signatureScheme"]["enum"] = list(allowed_names())
    SCHEMA.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    print(f"{PAGE.name} and {SCHEMA.name} are written.")

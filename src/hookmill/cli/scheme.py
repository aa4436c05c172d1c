"""`hookmill scheme`: the providers whose signatures can be verified."""

from __future__ import annotations

from typing import Annotated

import typer

from hookmill.cli import options
from hookmill.cli.output import Column, as_json, call, fields, line, table
from hookmill.presentation.scheme import SchemeView

commands = typer.Typer(no_args_is_help=True, help="Signature schemes: the providers that can be verified.")


@commands.command("list")
def list_schemes(json: options.AsJson = False) -> None:
    """List every scheme. One whose proof is none is experimental: built from its description alone."""
    from hookmill.domain.signatures.catalogue import schemes

    found = schemes()
    if json:
        as_json({"schemes": [SchemeView.of(scheme) for scheme in found]})
        return
    table(
        [
            Column("NAME", whole=True),
            Column("PROVIDER"),
            Column("SIGNED WITH", whole=True),
            Column("PROOF", whole=True),
        ],
        [(one.name, one.title, one.algorithm.value, one.proof.kind.value) for one in found],
    )
    line()
    line(f"Any other sender that signs with an HMAC: scheme hmac ({call('scheme show hmac')}).")


@commands.command()
def show(
    name: Annotated[str, typer.Argument(metavar="SCHEME", help="Its name.", show_default=False)],
    json: options.AsJson = False,
) -> None:
    """Show how to set a provider up, and what its signature covers."""
    from hookmill.domain.signatures.catalogue import find
    from hookmill.domain.signatures.description import facts
    from hookmill.domain.signatures.generic import GENERIC, GenericHmac

    if name == GENERIC:
        known = list(GenericHmac.__struct_fields__)
        if json:
            as_json({"name": GENERIC, "options": known})
            return
        line("The scheme that you fill in, for senders that sign with an HMAC in a header. Its options, as JSON:")
        line(f"  {', '.join(known)}")
        line("For example:")
        line("""  --signature '{"header": "X-Signature", "prefix": "sha256=", "encoding": "hex"}'""")
        return
    scheme = find(name)
    if json:
        as_json(SchemeView.of(scheme, name))
        return
    fields(
        [
            ("Scheme", scheme.name + (" (experimental)" if scheme.experimental else "")),
            ("Provider", scheme.title),
            ("Described at", scheme.docs),
            ("Signed with", scheme.algorithm.value),
        ]
    )
    for fact in facts(scheme, name):
        line(f"- {fact}")
    line()
    line("To set it up:")
    for number, step in enumerate(scheme.setup, 1):
        line(f"{number}. {step}")
    if any("paste" in step for step in scheme.setup):
        line()
        line(f"To paste it here, once the webhook is made: {call('webhook rotate NAME --secret-from-stdin')}")

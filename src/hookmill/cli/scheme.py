"""`hookmill scheme`: the providers whose signatures Hookmill verifies."""

from __future__ import annotations

from typing import Annotated

import typer

from hookmill.cli import options
from hookmill.cli.output import Column, command_line, print_fields, print_json, print_line, print_table
from hookmill.presentation.scheme import SchemeView

commands = typer.Typer(no_args_is_help=True, help="Signature schemes of the supported providers.")


@commands.command("list")
def list_schemes(json: options.AsJson = False) -> None:
    """List every scheme, and the evidence that it is correct. With proof none, it is experimental."""
    from hookmill.domain.signatures.catalogue import schemes

    all_schemes = schemes()
    if json:
        print_json({"items": [SchemeView.of(scheme) for scheme in all_schemes]})
        return
    print_table(
        [
            Column("NAME", no_wrap=True),
            Column("PROVIDER"),
            Column("SIGNED WITH", no_wrap=True),
            Column("PROOF", no_wrap=True),
        ],
        [(scheme.name, scheme.title, scheme.algorithm.value, scheme.proof.kind.value) for scheme in all_schemes],
    )
    print_line()
    print_line(f"For any other sender that signs with an HMAC, use scheme hmac ({command_line('scheme show hmac')}).")


@commands.command()
def show(
    name: Annotated[str, typer.Argument(metavar="SCHEME", help="The scheme's name.", show_default=False)],
    json: options.AsJson = False,
) -> None:
    """Show how to set up a provider, and what its signature covers."""
    from hookmill.domain.signatures.catalogue import find
    from hookmill.domain.signatures.description import properties_in_words
    from hookmill.domain.signatures.generic import GENERIC_SCHEME, GenericHmac

    if name == GENERIC_SCHEME:
        option_names = list(GenericHmac.__struct_fields__)
        if json:
            print_json({"name": GENERIC_SCHEME, "options": option_names})
            return
        print_line("The scheme for any sender that signs with an HMAC in a header. Its options, as JSON:")
        print_line(f"  {', '.join(option_names)}")
        print_line("For example:")
        print_line("""  --signature '{"header": "X-Signature", "prefix": "sha256=", "encoding": "hex"}'""")
        return
    scheme = find(name)
    if json:
        print_json(SchemeView.of(scheme, name))
        return
    print_fields(
        [
            ("Scheme", scheme.name + (" (experimental)" if scheme.experimental else "")),
            ("Provider", scheme.title),
            ("Described at", scheme.docs),
            ("Signed with", scheme.algorithm.value),
        ]
    )
    for sentence in properties_in_words(scheme, name):
        print_line(f"- {sentence}")
    print_line()
    print_line("To set it up:")
    for number, step in enumerate(scheme.setup, 1):
        print_line(f"{number}. {step}")
    if any("paste" in step for step in scheme.setup):
        print_line()
        rotate_command = command_line("webhook rotate NAME --secret-from-stdin")
        print_line(f"After you create the webhook, paste the secret here: {rotate_command}")

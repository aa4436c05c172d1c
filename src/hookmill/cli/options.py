"""Options that many commands share."""

from typing import Annotated, Final, TypeAlias

import typer

PAGE_ROWS: Final = 20
"""How many rows a list shows by default."""

FactoryName: TypeAlias = Annotated[str, typer.Option("--factory", metavar="NAME", help="The factory.")]
OfInstallation: TypeAlias = Annotated[
    bool, typer.Option("--installation", help="For the alarms of the installation, not of a factory.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Limit: TypeAlias = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="The maximum number of rows.")]
OutputFile: TypeAlias = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of standard output.")
]
CaFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--ca-file", metavar="FILE", help="A PEM file with certificate authorities to trust in addition."),
]
FromStdin: TypeAlias = Annotated[
    bool, typer.Option("--from-stdin", help="Read the value from standard input instead of generating one.")
]
SecretFromStdin: TypeAlias = Annotated[
    bool, typer.Option("--secret-from-stdin", help="Read the secret from standard input instead of generating one.")
]
OnlyWebhook: TypeAlias = Annotated[
    str | None, typer.Option("--webhook", metavar="WEBHOOK", help="Only those of this webhook (name or uid).")
]
EventTypes: TypeAlias = Annotated[
    list[str] | None, typer.Option("--event", metavar="TYPE", help="Only events of this type. May be repeated.")
]
FilterFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--filter-file", metavar="FILE", help="A file with the payload filter; - for standard input."),
]

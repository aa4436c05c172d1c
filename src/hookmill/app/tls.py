"""The TLS context of this service's own connections."""

import os
import ssl
from pathlib import Path
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.settings import Settings

COLLECTOR_CERTIFICATE: Final = "OTEL_EXPORTER_OTLP_CERTIFICATE"
"""OpenTelemetry's variable with a file of authorities to trust for the collector."""


def refuse_unusable_files(settings: Settings, *, serves: bool, performs_runs: bool) -> None:
    """Raises `Invalid` if a file with certificates can't be used. Otherwise, only its first use would show that.

    `serves`, `performs_runs`: what this service does with the settings.
    """
    names = ["alarm_ca_file", "s3_ca_file", *["oidc_ca_file"] * serves, *["results_ca_file"] * performs_runs]
    for name in names:
        if (path := getattr(settings, name)) is not None:
            client_context(path, name)
    if settings.otlp_endpoint is not None:
        collector_context()


def collector_context() -> ssl.SSLContext:
    """The context of connections to the collector. Raises `Invalid` like `client_context`."""
    path = os.environ.get(COLLECTOR_CERTIFICATE)
    return client_context(Path(path) if path else None, COLLECTOR_CERTIFICATE)


def client_context(ca_file: Path | None, setting: str) -> ssl.SSLContext:
    """Trusts the authorities of the system and those of `ca_file`, which the setting with this name names.

    Raises `Invalid` if this file can't be read, or has no certificate.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cadata=ca_file.read_text(encoding="ascii", errors="replace"))
        except (ssl.SSLError, ValueError):
            raise Invalid(f"The file of {setting}, {ca_file}, has no certificate in PEM.") from None
        except OSError as error:
            raise Invalid(f"The file of {setting}, {ca_file}, can't be read: {error.strerror}.") from None
    return context

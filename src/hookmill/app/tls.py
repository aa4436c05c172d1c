"""The TLS context of this service's own connections."""

import ssl
from pathlib import Path

from hookmill.domain.errors import Invalid


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

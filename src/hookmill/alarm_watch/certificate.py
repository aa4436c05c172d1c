"""Reads until when the certificate of a server is valid."""

import ssl

from cryptography import x509

from hookmill.domain import moment
from hookmill.domain.errors import DestinationUnavailable
from hookmill.outbound.connection import MessageDeadline, connected, reporting_failures


def certificate_expiry(host: str, port: int, seconds: float) -> int:
    """The end of the validity of the server's certificate, in µs since 1970.

    The certificate is not verified: an authority that this host does not know is no reason for an alarm. `seconds` is
    the deadline of the connection and the handshake together. Raises `DestinationUnavailable`.
    """
    deadline = MessageDeadline(seconds)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            reporting_failures(host, deadline),
            connected(host, port, deadline, where=host) as connection,
            context.wrap_socket(connection, server_hostname=host) as tls,
        ):
            certificate = tls.getpeercert(binary_form=True) or b""
        return moment.microseconds_of(x509.load_der_x509_certificate(certificate).not_valid_after_utc)
    except ValueError:
        raise DestinationUnavailable(f"The certificate of {host} can't be read.") from None

"""Reads until when the certificate of a server is valid."""

import socket
import ssl
import time
from typing import Final

from cryptography import x509

from hookmill.domain import moment

ADDRESSES_MAX: Final = 4
HANDSHAKE_BYTES_MAX: Final = 262_144
_READ_BYTES: Final = 16_384


def certificate_expiry(host: str, port: int, seconds: float) -> int:
    """The end of the validity of the server's certificate, in µs since 1970.

    The certificate is not verified: an authority that this host does not know is no reason for an alarm. `seconds` is
    the deadline of the connection and the handshake together. Raises `OSError`.
    """
    deadline = time.monotonic() + seconds
    try:
        with _connection(host, port, deadline) as connection:
            certificate = _peer_certificate(connection, host, deadline)
        return moment.microseconds_of(x509.load_der_x509_certificate(certificate).not_valid_after_utc)
    except ValueError as error:
        raise OSError("the name can't be looked up, or the certificate can't be read") from error


def _connection(host: str, port: int, deadline: float) -> socket.socket:
    last_error: OSError = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[:ADDRESSES_MAX]:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_remaining(deadline))
            connection.connect(address)
        except OSError as error:
            connection.close()
            last_error = error
        else:
            return connection
    raise last_error


def _peer_certificate(connection: socket.socket, host: str, deadline: float) -> bytes:
    """The certificate in DER form, after a handshake."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # A socket's timeout applies to each read, so a server that sends byte by byte could take any time.
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    received = 0
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            connection.settimeout(_remaining(deadline))
            connection.sendall(outgoing.read())
            content = connection.recv(_READ_BYTES)
            received += len(content)
            if not content or received > HANDSHAKE_BYTES_MAX:
                raise OSError("the server sent no valid handshake") from None
            incoming.write(content)
    certificate = tls.getpeercert(binary_form=True)
    if certificate is None:
        raise OSError("the server sent no certificate")
    return certificate


def _remaining(deadline: float) -> float:
    """The seconds until the deadline. Raises `TimeoutError` after it."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("the server took too long")
    return remaining

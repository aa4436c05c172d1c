"""Certificates for servers of tests at 127.0.0.1 and localhost, and the certificate authority that issued them."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificates_in(directory: Path, *, days: int = 1) -> tuple[Path, Path, Path]:
    """Write the three files to the directory, and return them: see `write_certificates`."""
    files = (directory / "ca.pem", directory / "server.pem", directory / "key.pem")
    write_certificates(*files, days=days)
    return files


def write_certificates(ca_file: Path, certificate_file: Path, key_file: Path, *, days: int = 1):
    """Write a certificate authority, a certificate that it has issued, and its key.

    The certificate is valid for `days` more days; if they are negative, it has expired.
    """
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tests")])

    def builder(name: x509.Name, public_key: ec.EllipticCurvePublicKey, valid_days: int) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=9))
            .not_valid_after(now + datetime.timedelta(days=valid_days, minutes=1))
        )

    ca = builder(ca_name, ca_key.public_key(), 99).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    leaf = builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Server")]), key.public_key(), days)
    pem = serialization.Encoding.PEM
    ca_file.write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    certificate_file.write_bytes(leaf.add_extension(names, False).sign(ca_key, hashes.SHA256()).public_bytes(pem))
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))

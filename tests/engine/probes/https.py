"""What the image's own certificates make of TLS servers.

The default context must refuse a server whose CA it does not know, and take it once that CA is given.
"""

import datetime
import json
import os
import socket
import ssl
import tempfile
import threading
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_ADDRESS = "127.0.0.1"


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    authority = subject == issuer
    builder = (
        x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name(issuer)).public_key(key.public_key())
    )
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
        now + datetime.timedelta(hours=1)
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(_ADDRESS))])
    builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        connection, _ = listener.accept()
        try:
            with context.wrap_socket(connection, server_side=True) as stream:
                stream.recv(1)
        except OSError:
            continue


def _connect(port: int, context: ssl.SSLContext) -> str:
    try:
        with socket.create_connection((_ADDRESS, port)) as plain, context.wrap_socket(plain, server_hostname=_ADDRESS):
            return "accepted"
    except ssl.SSLCertVerificationError as error:
        return error.verify_message


def main() -> None:
    """Report the number of CAs, some of their names, and how both connections ended."""
    authority, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("throw-away", authority, "throw-away", authority)
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as name:
        chain = Path(name, "chain.pem")
        chain.write_bytes(leaf.private_bytes(*encoding) + _certificate("leaf", leaf, "throw-away", authority))
        server.load_cert_chain(chain)
    listener = socket.create_server((_ADDRESS, 0))
    threading.Thread(target=_serve, args=(listener, server), daemon=True).start()
    port = listener.getsockname()[1]
    stranger, trusting = ssl.create_default_context(), ssl.create_default_context()
    trusting.load_verify_locations(cadata=ca.decode())
    roots = [x509.load_der_x509_certificate(der) for der in stranger.get_ca_certs(binary_form=True)]
    report = {
        "authorities": len(roots),
        "names": sorted(root.subject.rfc4514_string() for root in roots),
        "stranger": _connect(port, stranger),
        "trusting": _connect(port, trusting),
        "environment": sorted(variable for variable in os.environ if variable.startswith("SSL_CERT")),
    }
    print(json.dumps(report))


main()

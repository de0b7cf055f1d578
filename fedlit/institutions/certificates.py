"""Identities: the coordinator's certificate authority and server certificate, and the key pair of
each site.

All keys are of the elliptic curve P-384; Flower's node authentication takes no other. Import this
module inside :func:`fedlit.institutions.extra.needs_flower`.
"""

import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec

from fedlit.errors import ConfigError
from fedlit.privacy.keys import fingerprint_of

CA_DAYS = 3650
"""Days that a certificate authority is valid."""
SERVER_DAYS = 397
"""Days that a server certificate is valid; ``fedlit coordinate renew`` makes a new one, and sites
need nothing new."""
_SOON = 30


def write_new(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Write a file that must not exist yet.

    Args:
        path: of the file.
        content: all of it.
        secret: whether only its owner may read it.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    try:
        mode = 0o600 if secret else 0o644
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise ConfigError(
            f"{path}: is there already, and is not overwritten; move it away first"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path}: expected to write it, found: {error.strerror}; choose another folder"
        ) from error
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def make_authority(folder: Path, name: str) -> None:
    """Make ``ca.key`` and ``ca.crt``.

    Args:
        folder: the folder of the files.
        name: the name of the federation, for people who read the certificate.

    Raises:
        ConfigError: one of the files exists already.
    """
    _make(folder, "ca", f"{name}: authority", CA_DAYS)


def make_server(folder: Path, address: str, days: int = SERVER_DAYS) -> None:
    """Make ``server.key`` and ``server.crt``, signed by the authority of the folder.

    Args:
        folder: the folder with ``ca.key`` and ``ca.crt``.
        address: a name or an IP address at which sites reach the coordinator; names of this machine
            are added.
        days: the number of days for which it is valid.

    Raises:
        ConfigError: one of the files exists already, or the authority cannot be read.
    """
    authority = _read_certificate(folder / "ca.crt")
    try:
        signing = forms.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{folder / 'ca.key'}: expected the authority's private key, found: {error}"
        ) from error
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    names: list[x509.GeneralName] = []
    for name in dict.fromkeys([address, "localhost", "127.0.0.1"]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            names.append(x509.DNSName(name))
    extensions = (
        x509.SubjectAlternativeName(names),
        x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
    )
    _make(folder, "server", address, days, (authority.subject, signing), extensions)


def make_site_keys(folder: Path, site: str) -> str:
    """Make a site's ``site.key`` and ``<site>.pub``, in the form of OpenSSH.

    Args:
        folder: the folder of the files.
        site: the name of the site, written after the public key for people.

    Returns:
        The public key's fingerprint.

    Raises:
        ConfigError: one of the files exists already.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()
    )
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    if (folder / f"{site}.pub").exists():
        raise ConfigError(
            f"{folder / f'{site}.pub'}: is there already, and is not overwritten; move it away "
            "first"
        )
    write_new(folder / "site.key", private, secret=True)
    write_new(folder / f"{site}.pub", public + f" {site}\n".encode())
    return fingerprint(folder / f"{site}.pub")


def read_public_key(path: Path) -> Any:
    """Read a site's public key.

    Raises:
        ConfigError: the file is not a key that Flower accepts.

    Returns:
        A key of ``cryptography``.
    """
    try:
        key = forms.load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{path}: expected a site's public key, found: {error.strerror}"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{path}: expected a public key made by fedlit site keys, found another file"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ConfigError(
            f"{path}: expected a key of the curve P-384, found another; make one by fedlit site "
            "keys"
        )
    return key


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a certificate (as ``openssl x509 -fingerprint -sha256`` writes it) or
    of a public key (as ``ssh-keygen -l -f`` does).

    Args:
        path: a ``.crt`` or a ``.pub`` file.

    Raises:
        ConfigError: it is neither.
    """
    if path.suffix == ".pub":
        read_public_key(path)
        return fingerprint_of(path.read_text(encoding="utf-8"))

    return ":".join(
        re.findall("..", _read_certificate(path).fingerprint(hashes.SHA256()).hex().upper())
    )


def check_certificate(path: Path, renew: str) -> str:
    """Check that a certificate is valid now.

    Args:
        path: of the certificate.
        renew: what to do when it is not.

    Returns:
        A warning if it ends within 30 days, otherwise an empty text.

    Raises:
        ConfigError: it is not valid now.
    """
    certificate = _read_certificate(path)
    now = datetime.now(UTC)
    begin = certificate.not_valid_before_utc
    end = certificate.not_valid_after_utc
    if not begin <= now <= end:
        raise ConfigError(
            f"{path}: expected a certificate that is valid now, found one for {begin:%Y-%m-%d} to "
            f"{end:%Y-%m-%d}; {renew}, or set this machine's clock"
        )
    days = (end - now).days
    return f"{path}: is valid for {days} more days only; {renew}" if days < _SOON else ""


def _make(
    folder: Path,
    file: str,
    name: str,
    days: int,
    authority: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
    more: Sequence[x509.ExtensionType] = (),
) -> None:
    """Make a key and a certificate. Without an authority, the certificate is one, and signs
    itself.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    signs = authority is None
    issuer, signing = authority or (subject, key)
    begin = datetime.now(UTC) - timedelta(hours=1)  # clocks of sites differ
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
        ),
        False,
    )
    builder = (
        x509.CertificateBuilder(
            subject_name=subject, issuer_name=issuer, public_key=key.public_key()
        )
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=not signs,
                key_cert_sign=signs,
                crl_sign=signs,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
    )
    for extension in more:
        builder = builder.add_extension(extension, critical=False)
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    write_new(folder / f"{file}.key", private, secret=True)
    write_new(
        folder / f"{file}.crt",
        builder.sign(signing, hashes.SHA384()).public_bytes(forms.Encoding.PEM),
    )


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: expected a certificate, found: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: expected a certificate (PEM), found another file") from error

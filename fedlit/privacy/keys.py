"""Keys for masks, one pair a site, and how a site knows that a public key is another site's.

A pair is made anew for each federation. Public halves travel by the coordinator. Each is signed with the key that is
registered for its site (elliptic curve P-384, OpenSSH's form). Who knows the other sites' fingerprints from elsewhere
(``peers``) refuses a key that the coordinator has put in their place. Who does not trusts the coordinator for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedlit.errors import ConfigError, RunError
from fedlit.privacy.journal import write_whole

__all__ = ["UNKNOWN_PEERS", "accepted", "advert", "fingerprint", "mask_key", "public_of", "registered_key"]

UNKNOWN_PEERS = (
    "keys of other sites came by the coordinator and were compared with nothing: a coordinator that lies could put its "
    "own in their place and read this site's updates; name the sites' fingerprints under peers"
)
"""To be said where a site knows no fingerprints."""


def mask_key(path: Path) -> X25519PrivateKey:
    """The site's private key for masks: read, or made and written for its owner alone.

    Raises:
        RunError: the file holds something else.
    """
    if not path.exists():
        write_whole(path, X25519PrivateKey.generate().private_bytes_raw())
    if path.stat().st_mode & 0o077:
        os.chmod(path, 0o600)
    content = path.read_bytes()
    if len(content) != 32:
        raise RunError(f"{path}: expected the 32 bytes of a key for masks, found {len(content)}; restore the file")
    return X25519PrivateKey.from_private_bytes(content)


def public_of(key: X25519PrivateKey) -> bytes:
    """The 32 bytes of its public half."""
    return key.public_key().public_bytes_raw()


def registered_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A site's registered private key, in OpenSSH's form or PEM.

    Raises:
        ConfigError: no such key.
    """
    content = path.read_bytes()
    try:
        load = serialization.load_ssh_private_key if b"OPENSSH" in content else serialization.load_pem_private_key
        found = load(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: expected a private key without a password, found none ({error})") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path}: expected an elliptic curve key, found {type(found).__name__}; make a new pair")
    return found


def fingerprint(line: str) -> str:
    """Of a public key in OpenSSH's form, as ``ssh-keygen -l`` prints it.

    Raises:
        ConfigError: no such key.

    Example:
        >>> fingerprint("ecdsa-sha2-nistp384 AAAA")
        'SHA256:cJ6AyISHokEeHuTfufIqhhSS0gxHZRUMDHlKvXD4FHw'
    """
    parts = line.split()
    try:
        content = base64.b64decode(parts[1], validate=True)
    except (IndexError, binascii.Error) as error:
        raise ConfigError(f"expected a public key of OpenSSH's form, found {line[:40]!r}") from error
    return "SHA256:" + base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def advert(
    site: str, federation: str, key: X25519PrivateKey, registered: ec.EllipticCurvePrivateKey | None
) -> dict[str, str]:
    """What a site tells the others of its key for masks, as JSON.

    Args:
        site: its name.
        federation: what the signature is bound to.
        key: for masks.
        registered: signs; None for no signature.
    """
    public = public_of(key)
    told = {"public": public.hex()}
    if registered is not None:
        form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        told["key"] = registered.public_key().public_bytes(*form).decode()
        told["signature"] = registered.sign(_signed(site, federation, public), ec.ECDSA(hashes.SHA384())).hex()
    return told


def accepted(federation: str, adverts: Mapping[str, Any], peers: Mapping[str, str] | None) -> dict[str, bytes]:
    """The public keys that sites have told, checked.

    Args:
        federation: as in :func:`advert`.
        adverts: site → what it told.
        peers: site → its registered key in OpenSSH's form, or that key's fingerprint, known from elsewhere; None for
            sites that know none: signatures are then compared with keys that came the same way.

    Returns:
        Site → 32 bytes.

    Raises:
        RunError: a key that is missing, unsigned, of somebody else or no key.
    """
    found = {}
    for site, told in adverts.items():
        try:
            public = bytes.fromhex(told["public"])
            X25519PublicKey.from_public_bytes(public)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"site {site!r}: expected its public key for masks, found none; let it join again"
            ) from error
        if peers is not None:
            _refuse_others(site, told, peers)
        if peers is not None or "signature" in told:
            _verify(site, federation, public, told)
        found[site] = public
    if len(set(found.values())) < len(found):
        raise RunError("expected a key for masks of each site's own, found one twice; a copied folder, or a forgery")
    return found


def _refuse_others(site: str, told: Mapping[str, Any], peers: Mapping[str, str]) -> None:
    if site not in peers:
        raise RunError(f"site {site!r}: expected its fingerprint under peers, found none; ask the site and add it")
    if "key" not in told or "signature" not in told:
        raise RunError(f"site {site!r}: expected a signed key for masks, found none; its peers must know it is its own")
    known = peers[site] if peers[site].startswith("SHA256:") else fingerprint(peers[site])
    if (mine := fingerprint(str(told["key"]))) != known:
        raise RunError(
            f"site {site!r}: expected the key {known}, as under peers, found {mine}; ask the site, by another way than "
            "the coordinator, which one is its own"
        )


def _verify(site: str, federation: str, public: bytes, told: Mapping[str, Any]) -> None:
    try:
        registered = serialization.load_ssh_public_key(str(told["key"]).encode())
        if not isinstance(registered, ec.EllipticCurvePublicKey):
            raise ValueError("another kind of key")
        signature = bytes.fromhex(str(told["signature"]))
        registered.verify(signature, _signed(site, federation, public), ec.ECDSA(hashes.SHA384()))
    except (InvalidSignature, KeyError, ValueError, UnsupportedAlgorithm) as error:
        raise RunError(
            f"site {site!r}: expected its key for masks signed with its registered key, found that the signature does "
            "not fit; somebody has changed it on its way"
        ) from error


def _signed(site: str, federation: str, public: bytes) -> bytes:
    return json.dumps(["fedlit key for masks", 1, federation, site, public.hex()]).encode()

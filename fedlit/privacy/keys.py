"""Keys for masks, one pair a site, and how a site knows that a public key is another site's.

A site's pair lies in its folder. Public halves travel by the coordinator. Each is signed with the
key that is registered for its site (elliptic curve P-384, OpenSSH's form). A site that knows the
other sites' fingerprints from elsewhere (``peers``) refuses a key that the coordinator has put in
their place. Without them it relies on the coordinator.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from hmac import compare_digest
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedlit.errors import ConfigError, RunError

# a restarted site must say the same again
_SIGNATURE = ec.ECDSA(hashes.SHA384(), deterministic_signing=True)
UNKNOWN_PEERS = (
    "keys of other sites came by the coordinator and were compared with nothing: a coordinator "
    "that lies could put its own in their place and read this site's updates; name the sites' "
    "fingerprints under peers"
)
"""The note of a site that knows no fingerprints."""


def new_mask_key() -> bytes:
    """Return the 32 bytes of a new private key for masks."""
    return X25519PrivateKey.generate().private_bytes_raw()


def mask_key(path: Path) -> X25519PrivateKey:
    """Read the site's private key for masks.

    Raises:
        RunError: the file holds something else.
    """
    content = path.read_bytes()
    if len(content) != 32:
        raise RunError(
            f"{path}: expected the 32 bytes of a key for masks, found {len(content)}; restore the "
            "file"
        )
    return X25519PrivateKey.from_private_bytes(content)


def registered_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a site's registered private key, as ``fedlit site keys`` makes it.

    Raises:
        ConfigError: there is no such key.
    """
    try:
        private_key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{path}: expected the private key that fedlit site keys made, found none ({error})"
        ) from error
    if not isinstance(private_key, ec.EllipticCurvePrivateKey):
        raise ConfigError(
            f"{path}: expected an elliptic curve key, found {type(private_key).__name__}; make a new pair"
        )
    return private_key


def fingerprint_of(line: str) -> str:
    """Return the fingerprint of a public key in OpenSSH's form, as ``ssh-keygen -l`` prints it.

    Raises:
        ConfigError: it is not such a key.

    Example:
        >>> fingerprint_of("ecdsa-sha2-nistp384 AAAA")
        'SHA256:cJ6AyISHokEeHuTfufIqhhSS0gxHZRUMDHlKvXD4FHw'
    """
    parts = line.split()
    try:
        content = base64.b64decode(parts[1], validate=True)
    except (IndexError, binascii.Error) as error:
        raise ConfigError(
            f"expected a public key of OpenSSH's form, found {line[:40]!r}"
        ) from error
    return "SHA256:" + base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def public_line(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the public half of a registered key in OpenSSH's form."""
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return key.public_key().public_bytes(*form).decode()


def advert(
    site: str, federation: str, key: X25519PrivateKey, registered: ec.EllipticCurvePrivateKey
) -> dict[str, str]:
    """Return a site's public key for masks as plain data.

    Args:
        site: the name of the site.
        federation: the identity of the federation, to which the signature is bound.
        key: the key for masks.
        registered: the registered key, which signs.
    """
    public = key.public_key().public_bytes_raw()
    return {
        "public": public.hex(),
        "key": public_line(registered),
        "signature": registered.sign(_signed(site, federation, public), _SIGNATURE).hex(),
    }


def accepted(
    federation: str, adverts: Mapping[str, Mapping[str, str]], peers: Mapping[str, str]
) -> dict[str, bytes]:
    """Check the public keys that sites have sent, and return them.

    Args:
        federation: as in :func:`advert`.
        adverts: site → its advert (see :func:`advert`).
        peers: site → fingerprint of its registered key, known from elsewhere; empty for a site that
            knows none: signatures are then compared with keys that came the same way.

    Returns:
        Site → 32 bytes.

    Raises:
        RunError: a key that is missing, unsigned, of somebody else or no key.
    """
    publics = {}
    for site, offer in adverts.items():
        try:
            public = bytes.fromhex(offer["public"])
            X25519PublicKey.from_public_bytes(public)
            registered = serialization.load_ssh_public_key(str(offer["key"]).encode())
            assert isinstance(registered, ec.EllipticCurvePublicKey)
            signature = bytes.fromhex(str(offer["signature"]))
            registered.verify(
                signature, _signed(site, federation, public), ec.ECDSA(hashes.SHA384())
            )
        except (
            AssertionError,
            InvalidSignature,
            KeyError,
            TypeError,
            ValueError,
            UnsupportedAlgorithm,
        ) as error:
            raise RunError(
                f"site {site!r}: expected its key for masks, signed with its registered key, found "
                "another; somebody has changed it on its way, or the site must join again"
            ) from error
        if peers and (fingerprint := fingerprint_of(str(offer["key"]))) != peers.get(site):
            raise RunError(
                f"site {site!r}: expected the key {peers.get(site, 'that its peers entry names')}, "
                f"as under peers, found {fingerprint}; ask the site, by another way than the coordinator, "
                "which one is its own"
            )
        publics[site] = public
    if len(set(publics.values())) < len(publics):
        raise RunError(
            "expected a key for masks of each site's own, found one twice; a copied folder, or a "
            "forgery"
        )
    return publics


def _signed(site: str, federation: str, public: bytes) -> bytes:
    return json.dumps(["fedlit key for masks", 1, federation, site, public.hex()]).encode()


def derived(secret: bytes, info: bytes) -> bytes:
    """Return a key of 32 bytes (HKDF of SHA-256, RFC 5869), which reveals nothing about its secret
    or about keys for other purposes.
    """
    return HKDF(hashes.SHA256(), 32, None, info).derive(secret)


class Pairs:
    """The secrets that a site shares with each of the others, and the keys that are derived from
    them.

    Args:
        name: the name of the site.
        key: its private key for masks.
        publics: maps each of all sites to its public key, checked (see :func:`accepted`).
        federation: the identity of the federation, to which all keys are bound.

    Raises:
        RunError: the others have another public key of this site.
    """

    def __init__(
        self, name: str, key: X25519PrivateKey, publics: Mapping[str, bytes], federation: str
    ) -> None:
        self.name = name
        self.federation = federation
        self._key = key
        self._publics = dict(publics)
        self._secrets: dict[str, bytes] = {}
        if self._publics.get(name) != key.public_key().public_bytes_raw():
            raise RunError(
                f"site {name!r}: expected the others to know its own key for masks, found another "
                "one or none; somebody has changed it on its way, or an old message was used again"
            )

    def key(self, peer: str, *purpose: object) -> bytes:
        """Return 32 bytes for a purpose that this site and another one have in common, and nobody
        else.

        Raises:
            RunError: no public key of the other site is known.
        """
        if peer not in self._publics:
            raise RunError(
                f"masked sums: expected the key for masks of {peer!r}, found none; let all sites "
                "join again"
            )
        if peer not in self._secrets:
            try:
                self._secrets[peer] = self._key.exchange(
                    X25519PublicKey.from_public_bytes(self._publics[peer])
                )
            except ValueError as error:
                raise RunError(
                    f"site {peer!r}: expected a public key for masks, found one that is none"
                ) from error
        ends = [[site, self._publics[site].hex()] for site in sorted([self.name, peer])]
        return derived(
            self._secrets[peer], json.dumps(["fedlit", 2, self.federation, *purpose, ends]).encode()
        )

    def flags(self, number: int, fit: bool) -> dict[str, str]:
        """Map each other site to 64 hexadecimal digits that prove to it whether this site called
        its update fit.
        """
        return {
            peer: self.key(peer, "fit", number, self.name, fit).hex()
            for peer in self._publics
            if peer != self.name
        }

    def fit(self, number: int, flags: object, cohort: Iterable[str]) -> list[str]:
        """Return the sites of a round whose update is fit, according to the flags that they made
        themselves.

        Args:
            number: the number of exchanges before the round.
            flags: maps each site to (whether it is fit, its proof for this site), as the
                coordinator passes them on.
            cohort: the sites that take part in the round, including this one.

        Raises:
            RunError: there is a flag of another site, none of a site that takes part, or one that
                its site did not make.
        """
        cohort = sorted(cohort)
        if not isinstance(flags, Mapping) or sorted(flags) != cohort or self.name not in cohort:
            senders = "nothing"
            if isinstance(flags, Mapping):
                senders = ", ".join(sorted(map(str, flags)))
            raise RunError(
                f"masked sums, round {number + 1}: expected to sum over {', '.join(cohort)}, as "
                f"the federation's seed draws them, found {senders}; nothing was sent"
            )
        for peer, flag in flags.items():
            if not self._made_by(peer, number, flag):
                raise RunError(
                    f"masked sums, round {number + 1}: expected the flag that {peer} itself made "
                    "for its update, found another one; nothing was sent"
                )
        return [site for site in cohort if flags[site][0]]

    def _made_by(self, peer: str, number: int, flag: object) -> bool:
        """Return whether a flag is well formed, and whether its proof is one of the peer. This site
        needs no proof of its own flag.
        """
        if not isinstance(flag, list | tuple) or len(flag) != 2 or not isinstance(flag[0], bool):
            return False
        if peer == self.name:
            return True
        proof = self.key(peer, "fit", number, peer, flag[0]).hex()
        return compare_digest(str(flag[1]).encode(), proof.encode())

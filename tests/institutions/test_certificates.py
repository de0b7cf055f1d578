"""Certificates and keys, checked by Python's own TLS, by hashes made here, and by OpenSSH where it is there."""

import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest

from fedlit.errors import ConfigError
from fedlit.institutions.certificates import (
    check_certificate,
    make_authority,
    make_server,
    make_site_keys,
)

pytest.importorskip("flwr", reason="the extra fedlit[flower] is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder, "try")
    make_server(folder, "fl.example.org")
    return folder


def shake(server: Path, authority: Path, name: str) -> str:
    """Both sides of a TLS handshake: what the client says, or why not."""
    here, there = socket.socketpair()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(server / "server.crt", server / "server.key")

    def serve() -> None:
        try:
            with serving.wrap_socket(there, server_side=True) as line:
                line.recv(1)
        except OSError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        asking = ssl.create_default_context(cafile=str(authority))
        with asking.wrap_socket(here, server_hostname=name) as line:
            return str(line.version())
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        here.close()
        thread.join(10)


def test_a_client_of_the_authority_trusts_the_server_at_its_addresses_alone(made: Path, tmp_path: Path) -> None:
    for name in ("fl.example.org", "localhost", "127.0.0.1"):
        assert shake(made, made / "ca.crt", name) == "TLSv1.3"
    assert "Hostname mismatch" in shake(made, made / "ca.crt", "other.example.org")
    make_authority(tmp_path, "another")
    assert "unable to get local issuer" in shake(made, tmp_path / "ca.crt", "localhost")


def test_an_expired_certificate_is_refused_here_and_there(made: Path, tmp_path: Path) -> None:
    for name in ("ca.crt", "ca.key"):
        shutil.copy(made / name, tmp_path)
    make_server(tmp_path, "localhost", days=0)
    assert shake(tmp_path, tmp_path / "ca.crt", "localhost") == "certificate has expired"
    with pytest.raises(ConfigError, match=r"valid now, found one for .*renew it, or set this machine's clock"):
        check_certificate(tmp_path / "server.crt", "renew it")
    assert check_certificate(made / "server.crt", "renew it") == ""
    (tmp_path / "server.crt").unlink()
    (tmp_path / "server.key").unlink()
    make_server(tmp_path, "localhost", days=20)
    assert "valid for 19 more days only; renew it" in check_certificate(tmp_path / "server.crt", "renew it")


def test_private_keys_are_their_owners_alone_and_nothing_is_overwritten(made: Path, tmp_path: Path) -> None:
    make_site_keys(tmp_path, "north")
    for path in (made / "ca.key", made / "server.key", tmp_path / "site.key"):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigError, match=r"is there already, and is not overwritten"):
            {"ca.key": make_authority, "server.key": make_server, "site.key": make_site_keys}[path.name](
                path.parent, "north"
            )

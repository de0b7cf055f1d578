"""Certificates and keys, read back; Flower's SuperLink and its sites speak TLS by them in test_flower.py."""

import shutil
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from fedlit.errors import ConfigError
from fedlit.institutions.certificates import check_certificate, make_authority, make_server, make_site_keys

pytest.importorskip("flwr", reason="the extra fedlit[flower] is not installed")
x509 = pytest.importorskip("cryptography.x509", reason="the extra fedlit[flower] is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder, "try")
    make_server(folder, "fl.example.org")
    return folder


def test_the_authority_signs_the_server_for_its_addresses_alone(made: Path, tmp_path: Path) -> None:
    make_authority(tmp_path, "another")
    paths = (made / "server.crt", made / "ca.crt", tmp_path / "ca.crt")
    server, authority, another = (x509.load_pem_x509_certificate(path.read_bytes()) for path in paths)
    server.verify_directly_issued_by(authority)
    with pytest.raises(ValueError, match="does not match"):
        server.verify_directly_issued_by(another)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"fl.example.org", "localhost"}
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1")]
    constraints = [
        own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca for own in (server, authority)
    ]
    assert constraints == [False, True]


def test_an_expired_certificate_is_refused(made: Path, tmp_path: Path) -> None:
    for name in ("ca.crt", "ca.key"):
        shutil.copy(made / name, tmp_path)
    make_server(tmp_path, "localhost", days=0)
    with pytest.raises(ConfigError, match=r"valid now, found one for .*renew it, or set this machine's clock"):
        check_certificate(tmp_path / "server.crt", "renew it")
    assert check_certificate(made / "server.crt", "renew it") == ""
    (tmp_path / "server.crt").unlink()
    (tmp_path / "server.key").unlink()
    make_server(tmp_path, "localhost", days=20)
    assert "valid for 19 more days only; renew it" in check_certificate(tmp_path / "server.crt", "renew it")


def test_private_keys_are_their_owners_alone_and_nothing_is_overwritten(made: Path, tmp_path: Path) -> None:
    make_site_keys(tmp_path, "north")
    keys: Any = ((made / "ca.key", make_authority), (made / "server.key", make_server))
    for path, make in (*keys, (tmp_path / "site.key", make_site_keys)):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigError, match=r"is there already, and is not overwritten"):
            make(path.parent, "north")

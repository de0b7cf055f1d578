"""A coordinator's folder, and the certificates and keys in it: what is made, kept, and refused."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedlit
from fedlit.__main__ import main
from fedlit.errors import ConfigError
from fedlit.institutions.certificates import (
    check_certificate,
    fingerprint,
    make_authority,
    make_server,
    make_site_keys,
)
from fedlit.institutions.folder import add, check, init, invite, read_invited, renew, write_site
from fedlit.institutions.settings import federation_of, read_coordinator, read_site
from fedlit.privacy.settings import Masked, Privacy

pytest.importorskip("flwr", reason="the extra flower is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init(tmp_path / "trial", ["south", "north"], "fl.example.org", 9443)
    return tmp_path / "trial"


def keys(folder: Path, site: str) -> Path:
    (folder.parent / site).mkdir()
    make_site_keys(folder.parent / site, site)
    return folder.parent / site / f"{site}.pub"


def test_what_init_writes_can_be_read_and_is_handed_out(folder: Path) -> None:
    settings = read_coordinator(folder)
    assert (settings.address, settings.port, settings.sites) == (
        "fl.example.org",
        9443,
        ("north", "south"),
    )
    assert (settings.minimum, settings.patience, settings.most) == (1.0, 600, 2**30)
    invitation = folder / "invitations" / "north"
    assert {path.name for path in invitation.iterdir()} == {
        "invitation.yaml",
        "ca.crt",
        "federation.yaml",
    }
    assert set(yaml.safe_load((invitation / "invitation.yaml").read_text())) == {
        "site",
        "coordinator",
        "fingerprint",
    }
    site = read_site(write_site(invitation, read_invited(invitation)))
    assert (site.site, site.coordinator) == ("north", "fl.example.org:9443")
    assert site.fingerprint == fingerprint(site.certificate)
    assert site.federation.read_bytes() == settings.federation.read_bytes()
    assert set(site.data["source"]) == {"class_path", "init_args"}
    kept = {
        "name": site.site,
        "to": site.coordinator,
        "port": settings.port,
        "sites": list(settings.sites),
    }
    # it is written into the run's configuration
    assert yaml.safe_load(yaml.safe_dump(kept)) == kept
    with pytest.raises(
        ConfigError, match=r"is a coordinator's folder already, and is not overwritten"
    ):
        init(folder, ["north"])


def test_a_registry_has_one_key_of_its_own_for_each_site(folder: Path) -> None:
    settings = read_coordinator(folder)
    north = keys(folder, "north")
    south = keys(folder, "south")
    with pytest.raises(
        ConfigError, match=r"found none of north, south; fedlit coordinate add .* north north.pub"
    ):
        check(settings)
    assert add(settings, "north", north)[1] == "Still without a key: south"
    with pytest.raises(ConfigError, match=r"a key of south's own, found that of north"):
        add(settings, "south", north)
    with pytest.raises(
        ConfigError, match=r"another key of north is there \(SHA256:.*is not overwritten"
    ):
        add(settings, "north", south)
    with pytest.raises(ConfigError, match=r"found 'sotuh'.*Did you mean 'south'"):
        add(settings, "sotuh", south)
    add(settings, "north", north)  # again: nothing to do
    add(settings, "south", south)
    assert check(settings) == []
    (settings.keys / "west.pub").write_bytes(north.read_bytes())
    assert "west is not under sites" in check(settings)[0]


def test_a_renewed_certificate_has_the_same_authority(folder: Path) -> None:
    settings = read_coordinator(folder)
    authority = fingerprint(settings.certificates / "ca.crt")
    old = fingerprint(settings.certificates / "server.crt")
    assert "old-1" in renew(settings)
    assert fingerprint(settings.certificates / "ca.crt") == authority
    assert fingerprint(settings.certificates / "server.crt") != old
    assert fingerprint(settings.certificates / "old-1" / "server.crt") == old


def test_sites_are_invited_again_when_their_terms_changed(folder: Path) -> None:
    settings = read_coordinator(folder)
    assert invite(settings) == []
    settings.federation.write_text(settings.federation.read_text() + "# more\n")
    north = folder / "invitations" / "north"
    (folder / "invitations" / "south" / "ca.crt").unlink()
    assert invite(settings) == ["north", "south"]
    assert (north / "federation.yaml").read_bytes() == settings.federation.read_bytes()
    assert invite(settings) == []
    assert invite(replace(settings, port=9444)) == ["north", "south"]
    assert read_invited(north).coordinator == "fl.example.org:9444"


@pytest.mark.parametrize("keys", [(), ("--again",)])
def test_settings_in_an_invitation_are_refused(folder: Path, keys: tuple[str, ...]) -> None:
    """``--again`` is a person's word that they are that person's own."""
    north = folder / "invitations" / "north"
    written = write_site(north, read_invited(north))
    assert main(["site", "keys", str(north), *keys]) == (0 if keys else 2)
    assert (north / "site.key").is_file() == bool(keys)
    written.write_text(written.read_text() + "trust: [subprocess]\n")
    assert main(["site", "check", "--config", str(written)]) == 2


def test_an_invitation_has_three_values_and_no_others(folder: Path) -> None:
    path = folder / "invitations" / "north" / "invitation.yaml"
    good = yaml.safe_load(path.read_text())
    for key, value in (
        ("trust", ["os"]),
        ("data", {}),
        ("site", "a\nb"),
        ("coordinator", "x"),
        ("fingerprint", "x"),
    ):
        path.write_text(yaml.safe_dump({**good, key: value}))
        with pytest.raises(ConfigError, match=key):
            read_invited(path.parent)


def test_a_key_needs_an_invitation_or_settings(folder: Path) -> None:
    north = folder / "invitations" / "north"
    assert main(["site", "keys", str(north)]) == 0
    assert read_site(north / "site.yaml").site == "north"
    assert main(["site", "keys", str(north)]) == 2  # nothing is overwritten
    (north / "site.key").rename(folder / "old.key")
    (north / "north.pub").rename(folder / "old.pub")
    assert main(["site", "keys", str(north)]) == 2
    assert main(["site", "keys", str(north), "--again"]) == 0


SITE = "invitations/north/site.yaml"
MISFITS = [
    (
        "coordinator.yaml",
        "patience: 600",
        "patient: 600",
        "found 'patient'. Did you mean 'patience'",
    ),
    ("coordinator.yaml", "port: 9443", "port: 94430", "port: .*65535, found 94430"),
    ("coordinator.yaml", "port: 9443", "", "port: expected integer, found nothing"),
    (
        "coordinator.yaml",
        "[south, north]",
        "[south, south]",
        "sites: expected names, none of them twice, found",
    ),
    (
        "coordinator.yaml",
        "minimum: 1.0",
        "minimum: 3",
        "minimum: expected .* at most 2, .* found 3",
    ),
    ("coordinator.yaml", "minimum: 1.0", "minimum: 1.5", "minimum: expected .* found 1.5"),
    (
        SITE,
        "  source:\n",
        "  batches: 3\n  source:\n",
        "data: expected source: …, .*known: .*, found .*batches",
    ),
    (SITE, ":9443", "", "coordinator: .*fl.example.org"),
]


@pytest.mark.parametrize(("file", "old", "new", "told"), MISFITS)
def test_settings_that_do_not_fit_are_named(
    folder: Path, file: str, old: str, new: str, told: str
) -> None:
    path = folder / file
    if file == SITE:
        write_site(path.parent, read_invited(path.parent))
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=f"{path.name}: .*{told}"):
        read_site(path) if file == SITE else read_coordinator(folder)
    with pytest.raises(ConfigError, match=r"expected a file, found none; fedlit site keys"):
        read_site(path.with_name("other.yaml"))


def test_a_key_without_a_value_has_its_default(folder: Path) -> None:
    site = write_site((folder / SITE).parent, read_invited((folder / SITE).parent))
    plain = read_site(site)
    federation = folder / "federation.yaml"
    site.write_text(site.read_text().replace("peers: {}", "peers:") + "trust:\nthreads:\nmost:\n")
    assert read_site(site) == plain
    federation.write_text(federation.read_text() + "privacy: {masked: {least:, norm:}}\n")
    assert federation_of(federation).privacy == Privacy(Masked())


def test_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that a session needs: test_sites.py."""
    monkeypatch.chdir(folder.parent)
    for words in (["watch", "trial", "--once"], ["renew", "trial"]):
        assert main(["coordinate", *words]) == 0
    capsys.readouterr()
    for words, told in (
        (["strat", "trial"], "Did you mean 'start'"),
        (["init", "other", "--sites", "north,no rth"], "sites"),
        (["start", "nowhere"], "nowhere/coordinator.yaml: expected a file, found none"),
    ):
        assert main(["coordinate", *words]) == 2
        assert told in capsys.readouterr().err


def test_one_folder_imports_flower() -> None:
    """Whose interface for sites is private to it, and changes with its releases."""
    own = Path(fedlit.__file__).parent
    imports = re.compile(r"^\s*(from|import) flwr\b", re.MULTILINE)
    using = {
        str(path.relative_to(own).parent)
        for path in own.rglob("*.py")
        if imports.search(path.read_text())
    }
    assert using == {"institutions/flower"}


def test_the_server_can_certify_nobody(folder: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509", reason="the extra flower is not installed")
    read = [
        x509.load_pem_x509_certificate((folder / f"certificates/{own}.crt").read_bytes())
        for own in ("ca", "server")
    ]
    assert [
        own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca for own in read
    ] == [True, False]
    assert [
        own.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign for own in read
    ] == [True, False]


def test_an_expired_certificate_is_refused(folder: Path) -> None:
    made = folder / "certificates"
    assert check_certificate(made / "server.crt", "renew it") == ""
    for days in (0, 20):
        for name in ("server.crt", "server.key"):
            (made / name).unlink()
        make_server(made, "localhost", days=days)
        if days:
            assert "valid for 19 more days only; renew it" in check_certificate(
                made / "server.crt", "renew it"
            )
        else:
            with pytest.raises(
                ConfigError,
                match=r"valid now, found one for .*renew it, or set this machine's clock",
            ):
                check_certificate(made / "server.crt", "renew it")


def test_private_keys_are_their_owners_and_never_overwritten(folder: Path, tmp_path: Path) -> None:
    make_site_keys(tmp_path, "north")
    made = folder / "certificates"
    makers: tuple[Any, ...] = (make_authority, make_server, make_site_keys)
    for path, make in zip(
        (made / "ca.key", made / "server.key", tmp_path / "site.key"), makers, strict=True
    ):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigError, match=r"is there already, and is not overwritten"):
            make(path.parent, "north")


@pytest.mark.parametrize(
    "name", ["../..", "CON", "a\nHash of all this: 000 (accepted)", "x" * 41, "", "\x1b[2J", 7]
)
def test_a_site_has_one_kind_of_name_everywhere(tmp_path: Path, name: object) -> None:
    federation = {"id": 32 * "a", "sites": ["north", name, "south"]}
    (tmp_path / "federation.yaml").write_text(
        yaml.safe_dump({"federation": federation}), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match="sites"):
        federation_of(tmp_path / "federation.yaml")


def test_reading_a_sites_file_keeps_its_source_as_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "evil.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(folder)
    path = write_site((folder / SITE).parent, read_invited((folder / SITE).parent))
    content = yaml.safe_load(path.read_text())
    for name in ("evil.Source", "fedlit.Tables"):
        source = {"class_path": name, "init_args": {"files": {"north": "a.csv"}, "target": "y"}}
        path.write_text(yaml.safe_dump({**content, "data": {"source": source}}))
        assert read_site(path).data == {"source": source}

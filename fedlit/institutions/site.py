"""A site of a federation: its table, the plan that it is asked to agree to, and its run."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback

from fedlit.errors import ConfigError, RunError, described, expect, told_as
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.rule import Rule
from fedlit.exchange.schedule import BEGIN, cohort, cohort_size
from fedlit.institutions.accepted import PRIVATE, without
from fedlit.institutions.behind import JOINED, check_answers, check_classes, rows_behind
from fedlit.institutions.certificates import fingerprint
from fedlit.institutions.consent import Consent
from fedlit.institutions.dry_run import DryRun
from fedlit.institutions.messages import settings_of
from fedlit.institutions.plain import Facts
from fedlit.institutions.settings import (
    FederationFile,
    SiteSettings,
    federation_of,
    plain_federation,
)
from fedlit.institutions.terms import Terms
from fedlit.institutions.traffic import Traffic
from fedlit.institutions.transport import Answering, SiteTransport
from fedlit.jobs.pool import cores
from fedlit.privacy.keys import fingerprint_of, public_line, registered_key
from fedlit.privacy.ledger import Ledger
from fedlit.privacy.site import Shield
from fedlit.privacy.terms import lines, refuse
from fedlit.run.allowed import check_allowed, check_shared, trusted, trusting
from fedlit.run.arguments import Asked
from fedlit.run.config import read_yaml, shown
from fedlit.run.keys import check_keys
from fedlit.run.layers import Layer
from fedlit.run.length import Length
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.sharing import form_of
from fedlit.show.shown import say
from fedlit.train.manifest import read_checkpoint
from fedlit.train.results import Results
from fedlit.train.whole import LAST


def shielded(
    federation: FederationFile, settings: SiteSettings, run: Run, transport: SiteTransport
) -> Shield:
    """Make what protects a site's updates.

    Args:
        federation: its identity, its sites, and the privacy that is asked for.
        settings: of the site.
        run: whose clients are built.
        transport: by which keys are told.

    Raises:
        ConfigError: what privacy cannot be had with.
        RunError: keys that are not what they should be.
    """
    name = settings.site
    exchange = run.exchange
    privacy = federation.privacy
    sharing = exchange.sharing
    if set(sharing.names) != set(federation.sites):
        raise ConfigError(
            f"federation.sites: expected {', '.join(federation.sites)}, as this site has accepted, "
            f"found that {', '.join(sharing.names)} take part; ask the coordinator for the "
            "federation.yaml of these sites"
        )
    taking_part = cohort_size(exchange.participation, len(federation.sites))
    refuse(privacy, exchange.rule, sharing, taking_part, exchange.published[name])
    registered = None
    peers = dict(settings.peers)
    if privacy.masked is not None:
        registered = registered_key(settings.key)
        if peers:
            peers[name] = fingerprint_of(public_line(registered))

    def drawn(number: int) -> Iterable[str]:
        return (
            cohort(exchange.participation, federation.sites, run.seed, number) or federation.sites
        )

    shield = Shield(name, privacy, exchange.rule, transport.ledger, drawn, registered, peers)
    offers = transport.share("privacy", {name: shield.offer()}) if privacy.masked else {}
    model = exchange.server.blueprint(name)
    assert model is not None
    shield.meet(offers, sharing, model.fresh(None), transport.digest_of_facts)
    for note in shield.notes:
        say(f"Note: {note}")
    return shield


DONE = "federation-is-over"
"""The file in a run's folder that records that the coordinator knows that training is over."""

_log = logging.getLogger(__name__)


class Site:
    """A site's run, and the terms on which it takes part.

    Args:
        settings: the settings in the site's own file.

    Attributes:
        spent: the ε that was spent at the settings' δ; None without noise.
    """

    def __init__(self, settings: SiteSettings) -> None:
        self.settings = settings
        self.spent: float | None = None
        self.federation = federation_of(settings.federation)
        self.privacy = self.federation.privacy
        self.run = self._make()
        _refuse(self.run)
        pace = self.run.data.batching
        self.local = ("steps",) if pace.batches is not None and pace.steps is None else ()

    def _make(self) -> Run:
        settings = self.settings
        shared = self.settings.federation.absolute()
        federation = plain_federation(shared)
        file = shown(shared)
        layer: dict[str, Any] = {"data": dict(settings.data), "name": settings.site}
        if settings.folder.absolute() != Path.cwd():
            layer["trainer"] = {
                "default_root_dir": str(settings.folder.absolute() / "lightning_logs")
            }
        with trusting(*settings.trust):
            check_keys(federation, f"{file}: ")
            check_shared(federation, file)
            check_allowed(read_yaml(shared), file)
            layer |= {"model": _threads(settings, federation, file)}
            layers = [
                JOINED,
                Layer(federation, f"{file}: ", own=False),
                Layer(layer, f"{shown(settings.file)}: "),
            ]
            return parse(
                Asked("fit", layers, settings.site, [shared], [shared, settings.file.absolute()])
            )[0]

    def terms(self) -> Terms:
        """Return what would leave the site. Reads the table and builds the network, but sends
        nothing.
        """
        run = self._make()
        alone = self._dry_run(run)
        settings = self.settings
        exchange = run.exchange
        name = settings.site
        sharing = exchange.sharing
        rule = exchange.rule
        refuse(self.privacy, rule, sharing, len(sharing.names), exchange.published[name])
        values = sum(prod(sharing.forms[key][1]) for key in sharing.names[name])
        length = Length.of(run.trainer_options, run.data.aligned_steps)
        planned = length.rounds(exchange.every, completes=exchange.completes) or 0
        behind = rows_behind(run, name, alone.told)
        check_classes(run, name, behind, settings.rare_classes)
        check_answers(run, name, masked=self.privacy.masked is not None)
        rows = 0
        if "rows" in rule.needs:
            rows = run.loop.federation[name].spec.rows["train"]
        federation: dict[str, Any] = {}
        if self.federation.id:
            federation = {"id": self.federation.id, "sites": list(self.federation.sites)}
        return Terms(
            site=name,
            coordinator={"address": settings.coordinator, "fingerprint": _fingerprint(settings)},
            facts=alone.told,
            tensors={key: sharing.forms[key] for key in sharing.names[name]},
            published={key: form_of(value) for key, value in exchange.published[name].items()},
            rows=rows,
            asks=rule.asks,
            questions=_questions_of(rule),
            scores=settings.tell == "scores",
            every=exchange.every,
            rounds=planned,
            protection=tuple(lines(self.privacy, rule, planned, self._fewest_sites, values)),
            aligned=run.data.align != "none"
            or bool(exchange.by_name)
            or run.data.common is not None,
            sends=rule.sends,
            peers=dict(settings.peers),
            masked=self.privacy.masked is not None,
            federation=federation,
            trust=tuple(sorted({*trusted(), *settings.trust})),
            user=settings.user,
            facts_from=run.data.facts_from,
            behind=behind,
            rare_classes=settings.rare_classes,
            privacy=asdict(self.privacy),
            findings=tuple(run.data.findings.sentences()),
            known=dict(run.data.known or {}),
        )

    @property
    def _fewest_sites(self) -> int:
        """The least number of sites whose sum the coordinator may see; 1 without masks."""
        masked = self.privacy.masked
        if masked is None:
            return 1
        return masked.least

    def _dry_run(self, run: Run) -> DryRun:
        """Plan a run without the other sites, and return what this site would have sent."""
        name = self.settings.site
        twins = max(1, self._fewest_sites - 1)
        alone = DryRun(
            name, self.local, _named(run), run.exchange.federated, twins, self.federation.id
        )
        alone.share("settings", {name: settings_of(run, self.federation)})
        run.exchange.transport = alone
        run.describe()
        self._only_own(run)
        _say_manifest(run, name, alone.share)
        return alone

    def finished(self) -> Path | None:
        """Return the checkpoint of a training that is over; None if there is none."""
        newest = _newest(self.settings)
        if newest is None:
            return None
        header = read_checkpoint(newest, resumable=False)
        epochs = int(self.run.trainer_options.get("max_epochs") or 0)
        done = (
            header.get("fedlit", {}).get("personal", {}).get("done")
            or header["epoch"] + 1 >= epochs > 0
        )
        return newest if done and (newest.parent.parent / DONE).is_file() else None

    def _only_own(self, run: Run) -> None:
        clients = sorted(run.loop.federation)
        site_name = self.settings.site
        if clients != [site_name]:
            raise ConfigError(
                f"site {site_name}: expected one client of this name in its table's source, found "
                f"{', '.join(clients)}; use this name (files: {{{site_name}: FILE}}), or choose it "
                f"(clients: [{site_name}])"
            )


def _fingerprint(own: SiteSettings) -> str:
    if own.fingerprint:
        return own.fingerprint
    if own.certificate.is_file():
        return (
            f"{fingerprint(own.certificate)} (of {own.certificate.name}; compare it by telephone)"
        )
    return "not known, because there is no certificate yet"


def _named(run: Run) -> list[str]:
    """Return the columns that ``data.common`` lists."""
    common = run.data.common
    if isinstance(common, Mapping):
        return sorted(set().union(*common.values()))
    return sorted(set(common)) if isinstance(common, list) else []


def _refuse(run: Run) -> None:
    """Refuse settings that are impossible between institutions."""
    expect(
        not run.data.pool,
        "data.pool",
        "false between institutions",
        True,
        "rows stay where they are",
    )
    advice = "a site that trains alone needs no coordinator: fedlit fit"
    expect(
        run.exchange.on,
        "exchange.federated",
        "something to exchange",
        run.exchange.federated,
        advice,
    )
    if run.loop.federation.ending.stop is not None:
        raise ConfigError(
            "model.stop: expected none between institutions: sites do not see each other's scores "
            "and would stop at different rounds; set model.keep, by which each ends with its best "
            "epoch"
        )


def _threads(own: SiteSettings, federation: Facts, where: str) -> dict[str, object]:
    """Return the site's setting of threads, where the federation has none.

    Raises:
        ConfigError: the federation asks for more than the site allows.
    """
    threads = (federation.get("model") or {}).get("threads")
    most = own.threads or cores()
    if isinstance(threads, int) and threads > most:
        raise ConfigError(
            f"{where}: model.threads: expected at most {most}, as this site allows, found {threads}; "
            f"ask the coordinator for fewer, or raise threads in {shown(own.file)}"
        )
    return {} if threads is not None or own.threads is None else {"threads": own.threads}


def _questions_of(rule: Rule) -> dict[str, QuestionTerms]:
    """Return the bounds of a rule's questions by kind; any question if the rule states none."""
    questions = dict(sorted(rule.facts.questions.items()))
    if not questions and "answers" in rule.needs:
        return {"*": QuestionTerms()}
    return questions


def _say_manifest(run: Run, site: str, share: Any) -> None:
    published = {name: form_of(value) for name, value in run.exchange.published[site].items()}
    if published:
        share("manifest", {site: {"published": published}})


def join(
    site: Site,
    line: Answering,
    terms: Terms,
    *,
    renew: Callable[[Terms], None] | None = None,
    quiet: bool = False,
) -> Results:
    """Take part: agree with the others, train, and continue where the site was stopped.

    Args:
        site: the joining site.
        line: the channel to the process that uses the network.
        terms: the accepted terms.
        renew: called with new terms if tensors become wider by other sites' columns.
        quiet: whether only errors are printed.

    Raises:
        FedlitError: the coordinator refused, or training had to stop.
    """
    settings = site.settings
    run = site.run
    tells_scores = settings.tell == "scores"
    scores = (lambda: _scores(run)) if tells_scores else None
    ledger = Ledger(settings.folder / PRIVATE, terms.identity)
    ledger.open(terms.privacy, terms.federation.get("sites", []), without(settings.folder, terms))
    transport = SiteTransport(
        settings.site,
        line,
        run.exchange.rule,
        Consent(terms, renew),
        Traffic(settings.folder / "traffic.jsonl"),
        ledger,
        scores,
        site.local,
        run.seed,
    )
    run.exchange.transport = transport
    newest = _newest(settings)
    if newest is not None:
        transport.saved = _rounds_of(newest)
    transport.share("settings", {settings.site: settings_of(run, site.federation)})
    with told_as(_unusable):  # the dry run has built the same from this site's own facts
        run.describe()
        _say_manifest(run, settings.site, transport.share)
        if site.privacy.on:
            transport.shield = shielded(site.federation, settings, run, transport)
    callbacks = list(run.trainer_options.get("callbacks") or [])
    run.trainer_options["callbacks"] = [*callbacks, _remember(run, transport)]
    results = run.fit("last" if newest is not None else None, quiet=quiet)
    transport.end(_scores(run) if tells_scores else None)
    if run.folder is not None:
        (run.folder / DONE).touch()
    if (
        transport.shield is not None
        and (spent := transport.shield.epsilon) is not None
        and run.folder is not None
    ):
        site.spent = spent
        told_of = {"epsilon": spent, **site.federation.settings}
        (run.folder / "privacy.json").write_text(json.dumps(told_of, indent=1), encoding="utf-8")
    return results


def _unusable(error: Exception) -> RunError:
    """Turn an error that facts of other sites caused into a refusal."""
    return RunError(
        "expected facts of the other sites that fit this site's table, found some at which it "
        f"failed ({described(error)}); ask the coordinator which site has sent them"
    )


def _scores(run: Run) -> object:
    results = run.loop.results.get("validation")
    if results is None:
        return None
    return {name: dict(values) for name, values in results.scores.items()}


def _newest(own: SiteSettings) -> Path | None:
    """Return the checkpoint from which the site continues, if there is one."""
    checkpoints = sorted(
        (own.folder / "lightning_logs" / own.site).glob(f"version_*/checkpoints/{LAST}"),
        key=lambda path: int(path.parent.parent.name.removeprefix("version_")),
    )
    if not checkpoints:
        return None
    return checkpoints[-1]


def _rounds_of(checkpoint: Path) -> int:
    """Return the number of exchanges before a checkpoint."""
    states = read_checkpoint(checkpoint, resumable=False).get("callbacks", {})
    return next(
        (
            int(state["rounds"])
            for state in states.values()
            if "rounds" in state and "rule" in state
        ),
        BEGIN,
    )


def _remember(run: Run, transport: SiteTransport) -> LambdaCallback:
    """Return a callback that reports to the coordinator how far the site would go back if it were
    killed.
    """
    noted: dict[str, object] = {}

    def begin(trainer: Trainer, module: LightningModule) -> None:
        path = run.last_checkpoint
        if path is not None and (changed := path.stat().st_mtime_ns) != noted.get("changed"):
            if trainer.current_epoch > 0:
                transport.saved = run.exchange.rounds
            noted["changed"] = changed

    return LambdaCallback(on_train_epoch_start=begin)

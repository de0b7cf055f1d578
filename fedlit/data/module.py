"""The data side of a federation as a Lightning data module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import CombinedLoader

from fedlit.collector import paused_collector
from fedlit.data.agree import Agreement, negotiate
from fedlit.data.classes import labels_of, with_classes
from fedlit.data.columns import Categories, Scaling
from fedlit.data.common import Common, CommonColumns
from fedlit.data.encoder import TableEncoder, encode_tables
from fedlit.data.encoding import EncodedClient, Rows, pool_clients
from fedlit.data.examine.ledger import blocking_findings
from fedlit.data.findings import Finding, Findings
from fedlit.data.folds import check_fold, folded
from fedlit.data.loader import Batching, ClientLoader, EvalLoader, Steps, gather_together
from fedlit.data.newcomer import newcomer
from fedlit.data.note import Note
from fedlit.data.sent import SentStatement, describe_sent
from fedlit.data.shaping.mutations import Mutation, mutate
from fedlit.data.sources.base import Source, check_names, check_tables
from fedlit.data.statement import Statements, notes_on_withheld
from fedlit.data.table import (
    ClientTable,
    Split,
    check_client,
    choose_columns,
    describe_numbers,
    leave_out,
)
from fedlit.data.terms import Align, Bins, Missing, Terms
from fedlit.errors import Told, expect
from fedlit.names import Share
from fedlit.sharing import all_here
from fedlit.spec import ClientSpec

Poison = Callable[[Sequence[ClientTable], Sequence[str]], list[ClientTable]]
"""Returns tables with attacks in their training rows, given tables and the names of all clients."""


@dataclass(eq=False, repr=False)
class FederatedData(LightningDataModule):
    """Reads a source, encodes each client's table, and returns aligned batches.

    Args:
        source: where the tables come from.
        batches: B, batches per epoch, equal for all clients; a client's batch size is its training
            rows // B. 10 if neither this nor ``batch_size`` is given.
        batch_size: rows per batch, equal for all clients, instead of ``batches``: a client then has
            training rows // size batches, and waits at the end of the epoch for clients with more.
        steps: the number of steps that a client takes in an epoch, if it is not its number of
            batches: a number, or [least, most] to draw it for each client and epoch; for all
                clients, or by client's name or pattern.
        align: common input space and label encoder for all clients (see
            :class:`fedlit.data.terms.Terms`): ``none`` for Global Layers and Local, ``both`` for
            FedAvg.
        scaling: numbers are standardised by each client's own training rows (``client``) or by
            moments that all clients send (``pooled``), or are not changed (``none``).
        categories: whether categories become ordinal ``codes``, 0/1 ``indicators``, or indicators
            of the frequent ones (``auto``, see :class:`fedlit.data.terms.Terms`). If None, ``auto``
            for your own tables, whose types were found, and ``codes`` for others, as the papers
            have it.
        missing: missing numbers become the ``mean``, with ``indicator`` together with an indicator
            column.
        bins: the bins of numbers, for networks that use bins (TabM): quantiles of the client's own
            training rows (``own``), or of all clients that have the column, from a sketch that each
            client sends (``agreed``), or no bins (``none``).
        num_bins: the largest number of bins of a column; must equal the network's ``num_bins``.
        facts_from: the least number of training rows behind each category, mean, quantile and range
            that a client sends before training; 5 where a site joins, unless its federation sets
            another. A category of fewer rows is not sent by name (see
            :class:`fedlit.data.terms.Terms`).
        common: the common columns, for methods that treat them separately (CHFL): ``all`` for those
            that every client has, ``groups`` for those of every set of clients, or a list (see
            :func:`fedlit.data.common.find_groups`).
        pool: put all rows into one client (the centralized baseline), or, with ``concept``, into
            one client for each concept of :class:`~fedlit.data.shaping.derived.ConceptShift` and
            such; clients without a known concept are put together.
        columns: names or patterns of the columns to use (see
            :func:`fedlit.data.table.choose_columns`: ``!`` takes out); all if None.
        mutations: faults to inject into chosen clients (see
            :class:`fedlit.data.shaping.mutations.Mutation`).
        known: maps a column to the reason why nothing has to be done about what ``fedlit check``
            finds in it: ``{score: measured at admission}``. Reports and the model card print it.
        leave_out: names of clients to leave out. The source makes their tables first, so that
            splits, injected faults and seeds of the others do not change.
        eval_batch_size: rows per batch in validation, test and prediction.
        predict: the split that ``predict`` writes predictions for.
        folds: the number of folds into which each client's training and validation rows are split;
            0 for the split that the source gives. Test rows are untouched.
        fold: the fold whose rows are the validation rows, counted from 0; the others are training
            rows.
        seed: the run's seed, for the splits that are random and the order of rows.

    Attributes:
        share: sends facts about the clients of this process, and returns those about all (see
            :data:`fedlit.names.Share`); set it before ``setup`` if some clients are in other
            processes.
        poison: returns tables with changed training rows, given tables and the names of all
            clients; set it before ``setup`` if attacks are planted.
        deal: returns the names of this process's clients, given the size of each client; None if
            clients are not divided among processes.
        clients: the encoded clients of this process, ordered by name; known after ``setup``, like
            all attributes below.
        names: the names of all clients, in all processes.
        encoders: maps each client of this process to the encoder of its table.
        planted: a note on each injected fault.
        findings: the findings about the tables of this process above which there is no verdict, and
            those that are known; none if encoders are a trained run's.
        told_before: what clients send each other before the first step (see
            :func:`fedlit.data.sent.describe_sent`).
        statements: client of this process → what it said about values of columns, with the number
            of rows behind it.
        train_loaders: maps each client of this process to its loader of training batches.
        aligned_steps: the number of aligned steps in an epoch: that of the client with the most
            steps.
        rows_per_epoch: the largest number of training rows on which all clients together step in an
            epoch.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> data = FederatedData(Bundled(clients=["wine"]), batches=4)
        >>> data.setup()
        >>> data.specs[0].num_features, data.specs[0].num_outputs
        (13, 3)
    """

    source: Source
    batches: int | None = None
    batch_size: int | None = None
    steps: Steps | None = None
    align: Align = "none"
    scaling: Scaling = "client"
    categories: Categories | None = None
    missing: Missing = "mean"
    bins: Bins = "own"
    num_bins: int = 32
    facts_from: int = 1
    common: Common | None = None
    pool: bool | Literal["concept"] = False
    columns: list[str] | None = None
    mutations: list[Mutation] | None = None
    known: dict[str, str] | None = None
    leave_out: list[str] | None = None
    eval_batch_size: int = 1024
    predict: Split = "test"
    folds: int = 0
    fold: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the arguments as far as this is possible without reading a table."""
        super().__init__()
        expect(
            self.eval_batch_size >= 1, "data.eval_batch_size", "at least 1", self.eval_batch_size
        )
        check_fold(self.folds, self.fold)
        batches = self.batches
        if batches is None and self.batch_size is None:
            batches = 10
        self.batching = Batching(batches, self.batch_size, self.steps)
        self.mutations = list(self.mutations or ())
        self.leave_out = list(self.leave_out or ())
        self.share: Share = all_here
        self._kept: list[ClientTable] | None = None
        self.deal: Callable[[Mapping[str, int]], list[str]] | None = None
        self.poison: Poison | None = None
        self.clients: list[EncodedClient] = []
        self.names: list[str] = []
        self.encoders: dict[str, TableEncoder] = {}
        self.planted: list[Note] = []
        self.findings = Findings()
        self.told_before: list[SentStatement] = []
        self.statements: Mapping[str, Statements] = {}
        self.train_loaders: dict[str, ClientLoader] = {}
        self.aligned_steps = self.rows_per_epoch = 0
        self._agreement: Agreement | None = None
        self._learnt: Mapping[str, Mapping[str, Any]] = {}
        self._moved: dict[int, Rows] = {}
        # A cache, because loops ask at every batch, for up to ten thousand clients.
        self._sites: dict[Split, list[tuple[str, str, Rows]]] = {}
        self._about: Mapping[str, Mapping[str, Any]] = {}

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that make another data module like this one."""
        return {argument.name: getattr(self, argument.name) for argument in fields(self)}

    def use_encoders(
        self, states: Mapping[str, Mapping[str, Any]], agreement: Mapping[str, Any] | None = None
    ) -> None:
        """Use the encoders of a trained run instead of learning new ones. Call it before ``setup``.

        Args:
            states: maps each client of the run to its encoder's state, as :meth:`encoder_states`
                returned it.
            agreement: the agreement of the run, as :meth:`agreement_state` returned it, by which
                other clients are encoded (see :func:`fedlit.data.newcomer.newcomer`). If None, there
                may be no others.
        """
        self._learnt = states
        self._agreement = None
        if agreement is not None:
            self._agreement = Agreement.of(agreement)

    @property
    def learnt(self) -> bool:
        """Whether tables are encoded by the encoders of a trained run."""
        return bool(self._learnt)

    def agreement_state(self) -> dict[str, Any] | None:
        """What clients agreed on, as plain data for :meth:`use_encoders`; None if encoders are a
        trained run's, whose agreement was not given.
        """
        if self._agreement is None:
            return None
        return self._agreement.state_dict()

    def encoder_states(self) -> dict[str, dict[str, Any]]:
        """Map each client to the state of its encoder, as plain data for :meth:`use_encoders`."""
        return {name: encoder.state_dict() for name, encoder in self.encoders.items()}

    @paused_collector()
    def setup(self, stage: str | None = None) -> None:
        """Read and encode the tables, once.

        Raises:
            ConfigError: clients elsewhere where rows are pooled, or no state for a client here.
            DataError: a table that cannot be encoded; names the client and the column.
        """
        if self.clients:
            return
        aligned = not self.pool or self.align == "both"
        alignment = Told(f"align: {self.align}")
        expected = "align: both, because all rows go into one table"
        expect(aligned, "data.pool: true", expected, alignment)
        tables, all_names = self._read()
        self.names = [name for name in all_names if name not in (self.leave_out or ())]
        tables = self._with_classes(sorted(check_tables(tables), key=lambda table: table.name))
        new = [table for table in tables if table.name not in self._learnt]
        if new:
            self.findings = blocking_findings(new, self.source, self.known)
        self.encoders, tables = self._encoders(tables)
        clients = encode_tables([self.encoders[table.name] for table in tables], tables)
        self.clients = clients
        if self.pool:
            self.clients = self._pooled(clients)
            self.names = [client.spec.name for client in self.clients]
            all_names = self.names
        rows = {client.spec.name: len(client.train) for client in self.clients}
        self.batching.check(rows, all_names)
        self._make_loaders()
        self._share_about()

    def _with_classes(self, tables: list[ClientTable]) -> list[ClientTable]:
        """Give tables with one label the classes of the federation. Labels are not sent between
        institutions for this.
        """
        labels = {table.name: labels_of(table) for table in tables}
        if self.deal is not None:
            labels = dict(self.share("labels", labels))
        return with_classes(tables, labels, whole=self.deal is not None or self.share is all_here)

    def _make_loaders(self) -> None:
        """Make the loaders of training batches, with the aligned steps of all processes."""
        self.train_loaders = {}
        steps = dict[str, dict[str, Any]]()
        for client in self.clients:
            name = client.spec.name
            loader = ClientLoader(client.train, self.batching, self.seed, name)
            self.train_loaders[name] = loader
            steps[name] = {"steps": loader.most, "rows": loader.batch_size * loader.most}
        shared = self.share("steps", steps)
        self.steps_of = {name: facts["steps"] for name, facts in shared.items()}
        self.aligned_steps = max(self.steps_of.values())
        self.rows_per_epoch = sum(facts["rows"] for facts in shared.values())
        for loader in self.train_loaders.values():
            loader.length = self.aligned_steps

    def _share_about(self) -> None:
        """Send what the other processes of a job have to know about the clients here."""
        about = {client.spec.name: client.about for client in self.clients}
        (first, *_) = about.values()
        first["findings"] = self.findings.to_dict()["findings"]
        self._about = all_here("about", about) if self.deal is None else self.share("about", about)
        contents = chain(*(facts.get("findings", ()) for facts in self._about.values()))
        self.findings = Findings(tuple(map(Finding.of, contents)))

    def _read(self) -> tuple[list[ClientTable], list[str]]:
        """Return the tables of this process, and the names of all clients, including those that
        are left out.

        If clients are dealt to several processes, every process reads all tables where a client's
        table depends on others, or where the source holds all clients in one file.
        """
        together = self.pool or self.mutations or self.leave_out or self.columns
        sizes = None
        if self.deal is not None and not together:
            sizes = self.source.sizes()
        if self.deal is not None and sizes is not None:
            all_names = check_names(list(sizes))
            dealt = self.deal(sizes)
            tables = self._shape(self.source.some(dealt, self.seed, self.share), all_names)
        else:
            read = self._kept or self.source.tables(self.seed)
            self._kept = None
            names: dict[str, dict[str, Any]] = {table.name: {} for table in read}
            all_names = check_names(
                sorted(names) if self.deal else list(self.share("clients", names))
            )
            complete = self.deal is None and len(read) == len(all_names)
            advice = "leave it out, or run one process where all tables are"
            elsewhere = Told("some elsewhere")
            expect(
                complete or not self.pool, "data.pool: true", "all clients here", elsewhere, advice
            )
            tables = self._shape(read, all_names)
            if self.deal is None:
                return tables, all_names
            dealt = self.deal({table.name: len(table.splits["train"]) for table in tables})
            tables = [table for table in tables if table.name in dealt]
        self.share("clients", {name: {} for name in dealt})
        return tables, all_names

    def terms(self, known: bool) -> Terms:
        """Return what clients have to agree on.

        Args:
            known: whether fedlit found the kinds of some table's columns; the default of
                ``categories`` then is ``auto``.
        """
        settings = {name: getattr(self, name) for name in Terms.__dataclass_fields__}
        default = "auto" if known else "codes"
        settings["categories"] = self.categories or default
        settings["pool"] = bool(self.pool)
        if self.pool:
            settings["common"] = None
        return Terms(**settings)

    def _pooled(self, clients: list[EncodedClient]) -> list[EncodedClient]:
        """Return all clients as one, or as one for each concept."""
        if self.pool != "concept":
            return [pool_clients(clients, self.num_bins)]
        groups = dict[str, list[EncodedClient]]()
        for client in clients:
            ending = ""
            if client.spec.concept is not None:
                ending = f"-{client.spec.concept}"
            groups.setdefault(ending, []).append(client)
        return [pool_clients(groups[ending], self.num_bins, ending) for ending in sorted(groups)]

    def _encoders(
        self, tables: list[ClientTable]
    ) -> tuple[dict[str, TableEncoder], list[ClientTable]]:
        """Return the encoders by client, and the tables as the encoders take them."""
        describe_numbers(tables)
        terms = self.terms(known=any(table.schema is not None for table in tables))
        if not self._learnt:
            self._agreement, sent, self.statements = negotiate(tables, terms, self.share)
            self.told_before = []
            if not self.pool:
                self.told_before = describe_sent(sent, terms)
            encoders = {
                table.name: TableEncoder(table.name, self._agreement).fit(table) for table in tables
            }
            if self.facts_from > 1:
                tables = [self._with_notes(table, encoders[table.name]) for table in tables]
            return encoders, tables
        encoders = {}
        for index, table in enumerate(tables):
            if table.name in self._learnt:
                encoders[table.name] = TableEncoder(table.name)
                encoders[table.name].load_state_dict(self._learnt[table.name])
            elif self._agreement is not None:
                encoders[table.name], tables[index] = newcomer(
                    table, terms, self._agreement, self._learnt
                )
            else:
                check_client("the trained run", table.name, list(self._learnt))
        return encoders, tables

    def _with_notes(self, table: ClientTable, encoder: TableEncoder) -> ClientTable:
        """Add notes on what the client withholds."""
        stated = self.statements.get(table.name, {})
        topics = [stated.get(topic, {}) for topic in ("moments", "sketches")]
        numbers = chain(*(columns.items() for columns in topics))
        notes = notes_on_withheld(
            table.name, [*encoder.statements(table).items(), *numbers], self.facts_from
        )
        return replace(table, notes=(*table.notes, *notes))

    @paused_collector()
    def tables(self, *, keep: bool = False) -> list[ClientTable]:
        """Return the source's tables with the selected columns and the injected faults.

        Args:
            keep: keep what was read for ``setup``, which then does not read it again.
        """
        tables = self.source.tables(self.seed)
        if keep:
            self._kept = tables
        return self._shape(tables, [table.name for table in tables])

    def table(self, client: str) -> ClientTable:
        """Return one client's table with the selected columns and the injected faults. Other
        clients' tables are not read if nothing in it depends on them.
        """
        if self.mutations or self.leave_out or self.columns:
            return next(table for table in self.tables() if table.name == client)
        (table,) = self._shape(self.source.some([client], self.seed), [client])
        return table

    def _shape(self, tables: Sequence[ClientTable], names: Sequence[str]) -> list[ClientTable]:
        """Return tables with the selected columns, injected faults, folds and attacks, without the
        clients to leave out. Some of the ``names`` of all clients may be in other processes.
        """
        if self.columns is not None:
            tables = choose_columns(tables, self.columns, strict=len(tables) == len(names))
        tables, planted = mutate(tables, self.mutations or (), self.seed, names)
        self.planted = [
            fault for fault in planted if fault.clients[0] not in (self.leave_out or ())
        ]
        tables = leave_out(tables, self.leave_out or (), names)
        if self.folds:
            tables = [folded(table, self.folds, self.fold, self.seed) for table in tables]
        if self.poison is None:
            return tables
        return self.poison(tables, names)

    @property
    def groups(self) -> tuple[CommonColumns, ...]:
        """The groups of clients that share columns, if ``common`` asks for them."""
        if self._agreement is None:
            return ()
        return self._agreement.groups or ()

    @property
    def specs(self) -> list[ClientSpec]:
        """The clients' descriptions, ordered by name; known after ``setup``."""
        return [client.spec for client in self.clients]

    @property
    def concepts(self) -> dict[str, str | None]:
        """Maps each client of any process to the concept that its labels follow, where an
        experiment knows it.
        """
        return {name: facts["concept"] for name, facts in self._about.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: which clients share columns, injected faults and concepts, and
        oddities of tables.
        """
        lines = []
        if self.leave_out:
            lines.append(f"left out (data.leave_out): {', '.join(self.leave_out)}")
        lines += map(str, self.groups)
        alone = [name for name, facts in self._about.items() if facts["alone"]]
        if alone:
            lines.append(f"in no group, so without common columns: {', '.join(alone)}")
        if self._agreement is not None:
            lines += self._agreement.apart
        lines += [*self.planted, *self._concept_shift(), *self.findings.sentences()]
        return (*lines, *chain(*(facts["notes"] for facts in self._about.values())))

    def _concept_shift(self) -> list[str]:
        """Return a sentence on which clients follow which concept, if there are several."""
        followers: dict[str, list[str]] = {}
        for name, concept in self.concepts.items():
            if concept is not None:
                followers.setdefault(concept, []).append(name)
        if len(followers) < 2:
            return []
        texts = [
            f"concept {concept} at {', '.join(followers[concept])}" for concept in sorted(followers)
        ]
        return [f"a concept shift was planted: {'; '.join(texts)}"]

    def sites(self, split: Split) -> list[tuple[str, str, Rows]]:
        """Return (client, site, rows) in the order of the evaluation loader."""
        if self.clients and split not in self._sites:
            sites = list[tuple[str, str, Rows]]()
            for client in self.clients:
                sites += [
                    (client.spec.name, site, splits[split]) for site, splits in client.sites.items()
                ]
            self._sites[split] = sites
        return self._sites.get(split, [])

    def _resident(self, rows: Rows) -> Rows:
        """Return the rows on the Trainer's device. They are moved once, so that no batch has to
        travel during training.
        """
        if self.trainer is None:
            return rows
        device = self.trainer.strategy.root_device
        if device == rows.x.device:
            return rows
        if id(rows) not in self._moved:
            weight = None if rows.weight is None else rows.weight.to(device)
            self._moved[id(rows)] = Rows(rows.x.to(device), rows.y.to(device), rows.row, weight)
        return self._moved[id(rows)]

    def transfer_batch_to_device(
        self, batch: object, device: torch.device, dataloader_idx: int
    ) -> object:
        """Return the batch: its rows are on the device already."""
        return batch

    def train_dataloader(self) -> CombinedLoader:
        """Return one batch of every client for each aligned step."""
        for loader in self.train_loaders.values():
            loader.rows = self._resident(loader.rows)
        gather_together(self.train_loaders.values())
        return CombinedLoader(dict(self.train_loaders), "min_size")

    def _evaluation(self, split: Split) -> EvalLoader:
        rows = {site: self._resident(rows) for _, site, rows in self.sites(split)}
        return EvalLoader(rows, self.eval_batch_size)

    def val_dataloader(self) -> EvalLoader:
        """Return the loader of all sites' validation rows."""
        return self._evaluation("validation")

    def test_dataloader(self) -> EvalLoader:
        """Return the loader of all sites' test rows."""
        return self._evaluation("test")

"""What is trained in a study: each method with each of its combinations of settings. What cannot be
compared is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlit.errors import ConfigError, must_be_known
from fedlit.jobs.job import FitAlone, Train, title_of
from fedlit.mixture.settings import PartSettings
from fedlit.mixture.written import is_mixture
from fedlit.study.basis import Basis
from fedlit.study.contents import Contents
from fedlit.study.mixtures import mixture_settings
from fedlit.study.rows import ROWS, differing_rows
from fedlit.study.study import Lineup


@dataclass(frozen=True)
class Planned:
    """A run that is planned for every seed.

    Attributes:
        method: the name of the method or baseline.
        work: the work to do.
        made_of: the keys of the configuration that determine what is computed.
        settings: the combination of settings of a tuned method.
        left_out: the client without which it is trained.
    """

    method: str
    work: Train | FitAlone
    made_of: dict[str, Any]
    settings: dict[str, Any] | None = None
    left_out: str | None = None

    @property
    def title(self) -> str:
        """The name of the run, for the user."""
        return title_of(self.method, self.settings)


def planned_methods(study: Lineup, basis: Basis) -> list[Planned]:
    """Return all methods to train, with each of their combinations of settings. This reads no
    table.

    Args:
        study: the study whose methods they are.
        basis: the basis of the study.

    Raises:
        ConfigError: a method cannot be run, or two cannot be compared.
    """
    planned = list[Planned]()
    for name, tuned in study.variants:
        if study.methods[name].of is None:
            run = _planned(study, basis, name, tuned)
            _refuse_alike(run, planned)
            planned.append(run)
        else:
            parts = entering_parts(study, name)
            _check_sharing(study, name, name, _sharing(basis.contents, parts), parts)
    _refuse_other_rows(planned, reference_run(study, planned))
    return planned


def reference_run(study: Lineup, planned: Iterable[Planned]) -> Planned:
    """Return the run of the reference; if the reference is tuned, that of its first combination, as
    all have the same rows.
    """
    trained = study.trained(study.reference)
    return next(run for run in planned if run.method == trained)


def entering_parts(study: Lineup, name: str) -> dict[str, PartSettings]:
    """Return the parts of another method that a method mixes again.

    Raises:
        ConfigError: the other method is not a mixture, or does not have these parts.
    """
    method = study.methods[name]
    source = study.trained(name)
    if not is_mixture(study.config(source)):
        raise ConfigError(
            f"methods.{name}.of: expected a method whose configuration has several parts "
            f"(mixture:), found {source!r}"
        )
    parts = mixture_settings(study.config(source), study.methods[source].overrides()).parts
    must_be_known(f"methods.{name}.parts", method.parts, parts)
    entering = method.parts or list(parts)
    if isinstance(method.weights, dict):
        must_be_known(f"methods.{name}.weights", method.weights, entering)
        entering = [part for part in entering if method.weights.get(part)]
    return {part: parts[part] for part in entering}


def _planned(study: Lineup, basis: Basis, name: str, tuned: dict[str, Any]) -> Planned:
    """Plan a method with a combination of settings."""
    config = study.config(name)
    overrides = study.methods[name].overrides(tuned)
    title = title_of(name, tuned)
    try:
        content = basis.content(study, name, tuned)
    except ConfigError as error:
        if not tuned:
            raise
        raise ConfigError(f"methods.{title}: {error}") from error
    if is_mixture(config):
        made_of = {key: value for key, value in content.keys.items() if key.startswith(ROWS)}
        made_of["mixture"] = _mixture(study, basis, name, tuned)
        return Planned(name, Train(str(config), overrides, mixture=True), made_of, tuned or None)
    sharing = [name] if content.shares or content.pools else []
    _check_sharing(study, name, title, sharing, [])
    work = Train(str(config), overrides, study.checkpoint)
    return Planned(name, work, content.keys, tuned or None)


def _mixture(study: Lineup, basis: Basis, name: str, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a mixture is computed from, beside its rows."""
    overrides = study.methods[name].overrides(tuned)
    settings = mixture_settings(study.config(name), overrides)
    sharing = _sharing(basis.contents, settings.parts)
    _check_sharing(study, name, title_of(name, tuned), sharing, settings.parts)
    parts = dict[str, dict[str, Any]]()
    for part_name, part in settings.parts.items():
        keys = basis.contents.of(part.config, part.set).keys
        parts[part_name] = {"keys": keys, "go_alone": part.go_alone, "grid": part.grid}
    return {"folds": settings.folds, "parts": parts, "mixing": vars(settings.mixing)}


def _sharing(contents: Contents, parts: Mapping[str, PartSettings]) -> list[str]:
    """Return the parts in which other clients have a share."""
    names = list[str]()
    for name, part in parts.items():
        if part.go_alone is None:
            content = contents.of(part.config, part.set)
            if content.shares or content.pools:
                names.append(name)
    return names


def _check_sharing(
    study: Lineup, name: str, title: str, sharing: Sequence[str], parts: Iterable[str]
) -> None:
    """Refuse a method alone that shares something, and a federated method that does not, because
    federated methods are compared with the methods alone.
    """
    method = study.methods[name]
    reference = name == study.reference
    # To tune a method, a study is made that has no other method than its reference.
    alone = method.alone or (reference and len(study.methods) > 1)
    if alone and sharing:
        raise ConfigError(
            f"methods.{title}: expected nothing that clients share, because each client trains "
            f"alone here, found {list(sharing)!r}; set exchange.federated: [], name other parts or "
            "another reference, or drop alone"
        )
    if not (method.alone or method.pooled or sharing or reference):
        raise ConfigError(
            f"methods.{title}: expected something in exchange.federated, found {[*parts]!r}; set "
            "alone: true (each client by itself) or pooled: true (all rows in one place)"
        )


def _refuse_alike(run: Planned, before: Iterable[Planned]) -> None:
    """Refuse two combinations that train the same, such as 1 and 1.0, or the values of a key that
    changes no result.
    """
    for earlier in before:
        if earlier.method == run.method and earlier.made_of == run.made_of:
            raise ConfigError(
                f"methods.{run.method}.tune: expected combinations that differ in what is trained, "
                f"found {[earlier.title, run.title]!r}; these are alike; drop one"
            )


def _refuse_other_rows(planned: Iterable[Planned], reference: Planned) -> None:
    """Refuse methods that have other rows than the reference."""
    for run in planned:
        keys = differing_rows(run.made_of, reference.made_of)
        if keys:
            raise ConfigError(
                f"methods.{run.title}: expected the rows of {reference.method}, with the same "
                f"data, found {keys!r}; methods are compared on the same rows"
            )

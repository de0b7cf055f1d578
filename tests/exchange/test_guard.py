"""The guard: who is left out, who is named, and that the honest lose no bit by it."""

from __future__ import annotations

import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import Faulty, different, make_run, weights

from fedlit.client import FederatedClient
from fedlit.errors import RunError
from fedlit.exchange.far import clipped, find_far, norms_of
from fedlit.exchange.named import too_often, words
from fedlit.exchange.outcome import least
from fedlit.exchange.rule import Update
from fedlit.exchange.rules import IFCA, FedAvgM, Mean

NAN = math.nan

# ------------------------------------------------------------------ arithmetic


def found(
    changed: list[list[float]], itself: Any = None, past: Any = (), parameters: Any = None, steps: Any = None
) -> Any:
    """What is found of clients' norms, one row a client."""
    norms = torch.tensor([changed, itself if itself is not None else changed])
    width = len(changed[0])
    kinds = torch.tensor(parameters if parameters is not None else [True] * width)
    pace = torch.tensor(steps) if steps is not None else torch.ones(len(changed))
    return find_far(norms, kinds, torch.ones(width), past, pace)


def test_an_update_is_far_by_its_robust_z_score_of_log_sizes() -> None:
    # worked out by hand: sizes 1, 1.1, 0.9, 20 over the lower median 1; spread is the floor, log 1.4
    far = found([[1.0], [1.1], [0.9], [20.0]])
    assert far.far.tolist() == [False, False, False, True]
    assert far.size[3].item() == pytest.approx(20.0)
    # 5 is log(5) / log(1.4) = 4.8 floors above: named, not left out; 7.6 is 6.03 above: left out
    assert found([[1.0], [1.0], [1.0], [5.0]]).far.tolist() == [False] * 4
    assert found([[1.0], [1.0], [1.0], [5.0]]).suspicious.tolist() == [False, False, False, True]
    assert found([[1.0], [1.0], [1.0], [7.6]]).far.tolist() == [False, False, False, True]
    # where clients differ the same size is not far: the median distance of these logs is log 2, the spread its ceiling,
    # 1.5 log 1.4, so that far begins at 1.4⁹ = 20.7 times
    wide = [[0.25], [0.5], [1.0], [2.0]]
    assert found([*wide, [20.0]]).far.tolist() == [False] * 5
    assert found([*wide, [21.0]]).far.tolist() == [False] * 4 + [True]


def test_clients_with_other_tensors_are_compared_on_what_they_share() -> None:
    # the second tensor is large at all that have it; the third is one client's own and harms nobody
    far = found([[1.0, 100.0, NAN], [1.0, NAN, NAN], [1.1, 90.0, 1e9], [1.0, 110.0, NAN]])
    assert not far.suspicious.any()
    far = found([[1.0, 100.0, NAN], [50.0, NAN, NAN], [1.1, 90.0, 1e9], [1.0, 110.0, NAN]])
    assert far.far.tolist() == [False, True, False, False]


@pytest.mark.parametrize("huge", [1e8, 1e37, 3e38, math.inf])
@pytest.mark.parametrize("guilty", [1, 2, 3, 4])
def test_fewer_than_half_are_found_however_large(huge: float, guilty: int) -> None:
    honest = [[1.0 + 0.1 * place] for place in range(10 - guilty)]
    assert found([*honest, *[[huge]] * guilty]).far.tolist() == [False] * (10 - guilty) + [True] * guilty


@pytest.mark.parametrize("still", [0.0, 1e-6, 0.01])
@pytest.mark.parametrize(("riders", "honest"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)])
def test_clients_that_hardly_move_hide_nobody(still: float, riders: int, honest: int) -> None:
    far = found([*[[still]] * riders, *[[1.0 + 0.1 * place] for place in range(honest)], [30.0]])
    if still == 0 or riders < honest + 1:
        assert far.far.tolist() == [False] * (riders + honest) + [True]
    else:  # most do hardly move: whoever does is named
        assert far.suspicious.tolist()[-1]


def test_a_client_that_takes_more_steps_may_move_further() -> None:
    assert found([[1.0], [1.0], [20.0]], steps=[10.0, 10.0, 200.0]).suspicious.tolist() == [False] * 3
    assert found([[1.0], [1.0], [30.0]], steps=[200.0, 10.0, 10.0]).far.tolist() == [False, False, True]
    assert found([[1.0], [1.0], [400.0]], steps=[10.0, 10.0, 200.0]).far.tolist() == [False, False, True]


def test_a_negative_variance_is_far() -> None:
    honest = {"core.1.running_var": torch.ones(3), "core.1.running_mean": torch.tensor([-1.0, 0.0, 1.0])}
    names, norms = norms_of(Update(honest), {})
    assert names == list(honest) and norms.isfinite().all()
    worse = norms_of(Update({**honest, "core.1.running_var": torch.tensor([1.0, -0.1, 1.0])}), {})[1]
    assert worse.isinf().tolist() == [[True, False], [True, False]]
    table = torch.stack([norms, norms, worse], 1)
    far = find_far(table, torch.tensor([False, False]), torch.ones(2), (), torch.ones(3))
    assert far.far.tolist() == [False, False, True]


@pytest.mark.parametrize("huge", [1.9e19, 3e38])  # the squares overflow float32 from 1.845e19 on
def test_one_value_whose_square_overflows_is_far(huge: float) -> None:
    given = {"w": torch.zeros(3), "v": torch.zeros(2)}
    measured = []
    for first in (1.0, 1.0, 1.0, huge):
        state = {"w": torch.tensor([first, 1.0, 1.0]), "v": torch.ones(2)}
        measured.append(norms_of(Update(state, parameters=("w", "v")), given)[1])
    norms = torch.stack(measured, 1)
    past: Any = ()
    far = find_far(norms, torch.tensor([True, True]), torch.tensor([3, 2]), past, torch.ones(4))
    assert far.far.tolist() == [False, False, False, True] and far.size[3].isinf()


def test_half_of_the_clients_are_not_left_out_by_the_other_half() -> None:
    far = found([[1.0], [1.0], [20.0], [20.0]])
    assert not far.far.any() and far.suspicious.tolist() == [False, False, True, True]


@pytest.mark.parametrize("huge", [3e19, 3e38, math.inf])
def test_what_overflows_a_sum_of_squares_is_far_whatever_the_others_send(huge: float) -> None:
    assert found([[1.0], [huge]]).far.tolist() == [False, True]
    assert found([[1.0], [1.0], [huge], [huge]]).far.tolist() == [False, False, True, True]


def test_of_two_both_are_suspects_unless_history_decides() -> None:
    assert found([[1.0], [9.0]]).suspicious.tolist() == [True, True]
    assert not found([[1.0], [9.0]]).far.any()
    assert not found([[1.0], [3.0]]).suspicious.any()
    # a root mean square of 1e8 where networks begin at about 1
    absurd = found([[1.0], [1e8]])
    assert absurd.far.tolist() == absurd.suspicious.tolist() == [False, True]
    steps = [(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 0.1]))] * 3
    decided = found([[1.0], [10.0]], past=steps)
    assert decided.far.tolist() == decided.suspicious.tolist() == [False, True]
    both = found([[12.0], [10.0]], past=steps)  # both jumped: a schedule, not a fault
    assert not both.suspicious.any()


def test_all_that_grow_alike_are_nobodys_fault() -> None:
    assert not found([[1e5], [1.1e5], [0.9e5]]).suspicious.any()


def test_statistics_count_by_their_root() -> None:
    # a variance is a square: 9 times the others' is as a parameter of 3 times
    changed = [[1.0, 1.0], [1.0, 1.0], [1.0, 9.0]]
    assert not found(changed, parameters=[True, False]).suspicious.any()
    changed[2][1] = 100.0
    assert found(changed, parameters=[True, False]).far.tolist() == [False, False, True]


def test_where_most_do_not_move_nobody_is_far() -> None:
    assert not found([[0.0], [0.0], [1.0]]).suspicious.any()


def test_clipping_keeps_the_direction_and_gives_the_size() -> None:
    given = {"w": torch.tensor([1.0, 1.0])}
    made = clipped({"w": torch.tensor([31.0, 41.0])}, given, torch.tensor(0.1))
    torch.testing.assert_close(made["w"], torch.tensor([4.0, 5.0]))


# ------------------------------------------------------------------ federations


def bad(fault: str) -> type[FederatedClient]:
    return type(f"Faulty_{fault}", (Faulty,), {"fault": fault})


RULES = {"mean": Mean, "rows": partial(Mean, "rows"), "momentum": FedAvgM, "ifca": partial(IFCA, 2)}


@pytest.mark.parametrize(
    ("fault", "rule", "every"),
    [
        ("1e8", "mean", "epoch"),
        ("1e37", "rows", "epoch"),
        ("3e38", "momentum", "epoch"),
        ("-3e38", "mean", "step"),
        ("state", "mean", "epoch"),
        ("update", "momentum", {"steps": 2}),
        ("1e8", "ifca", "epoch"),
    ],
)
def test_the_guilty_is_left_out_and_named(
    fault: str, rule: str, every: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = {"federated": ["core"], "rule": RULES[rule], "every": every}
    run = make_run(tmp_path, client=bad(fault), exchange=exchange, epochs=2)
    run.fit(quiet=True)
    assert set(run.exchange.found) == {"cedar"} and not run.exchange.not_finite
    # before the first exchange nothing was given: an update is not known to be large before the second
    assert run.exchange.found["cedar"]["left_out"] >= run.exchange.rounds - (fault == "update")
    told = [message for message in caplog.messages if "was left out" in message]
    assert told and all("'cedar'" in message for message in told)
    if fault == "update":
        return
    others = make_run(tmp_path / "others", exchange=exchange, clients=("ash", "birch"), epochs=2)
    others.fit(quiet=True)
    honest = {name: value for name, value in weights(run).items() if "cedar" not in name}
    assert different(honest, weights(others)) == []


def test_without_a_guard_the_same_client_ruins_all(tmp_path: Path) -> None:
    run = make_run(tmp_path, client=bad("1e8"), exchange={"federated": ["core"], "guard": False}, epochs=1)
    run.fit(quiet=True)
    assert float(run.loop.federation["ash"].core[0].weight.detach().abs().mean()) > 1e7  # type: ignore[index, union-attr]


def test_watching_names_and_leaves_nobody_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, client=bad("state"), exchange={"federated": ["core"], "guard": "watch"}, epochs=1)
    run.fit(quiet=True)
    assert run.exchange.found == {"cedar": {"exchanges": run.exchange.rounds, "watched": 1}}


def test_what_is_made_smaller_takes_part(tmp_path: Path) -> None:
    run = make_run(tmp_path, client=bad("update"), exchange={"federated": ["core"], "guard": "clip"})
    run.fit(quiet=True)
    assert run.exchange.found["cedar"]["clipped"] > 0 and "left_out" not in run.exchange.found["cedar"]


@pytest.mark.parametrize("mode", ["leave_out", "clip", "watch"])
def test_13_a_guard_changes_no_bit_of_the_honest(mode: str, tmp_path: Path) -> None:
    ends = []
    for guard in (mode, False):
        run = make_run(tmp_path / str(guard), exchange={"federated": ["core"], "guard": guard, "rate": 0.7})
        run.fit(quiet=True)
        assert run.exchange.found == {}
        ends.append(weights(run))
    assert different(*ends) == []


def test_14_fewer_than_needed_end_the_run_and_are_named(tmp_path: Path) -> None:
    exchange = {"federated": ["core"], "minimum": 1.0}
    run = make_run(tmp_path, client=bad("1e8"), exchange=exchange)
    with pytest.raises(RunError, match=r"at least 3 clients, found it at 2 \(far from the others: cedar\)"):
        run.fit(quiet=True)


def test_a_resumed_run_goes_on_to_the_same_bits_and_counts(tmp_path: Path) -> None:
    exchange = {"federated": ["core"], "every": {"steps": 3}}
    whole = make_run(tmp_path / "whole", client=bad("update"), exchange=exchange, epochs=4)
    whole.fit(quiet=True)
    make_run(tmp_path / "parts", client=bad("update"), exchange=exchange, epochs=2).fit(quiet=True)
    parts = make_run(tmp_path / "parts", client=bad("update"), exchange=exchange, epochs=4)
    parts.fit("last", quiet=True)
    assert different(weights(whole), weights(parts)) == []
    assert parts.exchange.found == whole.exchange.found != {}
    assert parts.exchange.named.state_dict() == whole.exchange.named.state_dict()


# ------------------------------------------------------------------ what is said


@pytest.mark.parametrize(
    ("minimum", "clients", "expected"), [(None, 1, 1), (None, 2, 1), (None, 3, 2), (None, 4, 3), (0.5, 5, 3), (2, 9, 2)]
)
def test_the_minimum_is_more_than_half_of_those_who_take_part(minimum: Any, clients: int, expected: int) -> None:
    assert least(minimum, clients) == expected


def test_who_was_left_out_too_often_is_told_at_the_end() -> None:
    found = {"ash": {"clipped": 2}, "oak": {"left_out": 1, "watched": 3}, "elm": {"not_finite": 3}}
    found = {name: {"exchanges": 4, **own} for name, own in found.items()}
    assert too_often(found) == ["ash", "elm"]
    assert [line.partition(":")[0] for line in words(found)] == ["elm", "oak", "ash"]


def test_a_warning_is_not_repeated_at_every_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    run = make_run(tmp_path, client=bad("1e8"), exchange={"federated": ["core"], "every": "step"}, epochs=6)
    run.fit(quiet=True)
    assert run.exchange.found["cedar"]["left_out"] == run.exchange.rounds == 24
    assert sum("was left out" in message for message in caplog.messages) == 2  # the first, and the tenth

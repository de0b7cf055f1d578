"""Which tensors are recognised as slices of one."""

import pytest
import torch
from torch import nn

from fedlit.stacks import base_of


def stacked_rows(clients: int = 4) -> tuple[torch.Tensor, list[nn.Parameter]]:
    """Return a stack, and parameters whose memory is that of its slices."""
    stack = torch.arange(clients * 6.0).view(clients, 2, 3)
    return stack, [nn.Parameter(stack[client]) for client in range(clients)]


def test_base_of_parameters_is_the_memory_of_the_stack() -> None:
    stack, rows = stacked_rows()
    base = base_of(rows)
    assert base is not None
    assert base.data_ptr() == stack.data_ptr()
    assert base.shape == stack.shape
    assert base.is_contiguous()
    assert not base.requires_grad
    base[2] += 100.0
    assert torch.equal(rows[2].detach(), stack[2])
    assert float(rows[2].detach().min()) >= 100.0


def test_part_of_a_stack_is_a_stack() -> None:
    stack, rows = stacked_rows()
    base = base_of(rows[1:3])
    assert base is not None
    assert torch.equal(base, stack[1:3])
    alone = base_of(rows[3:])
    assert alone is not None
    assert torch.equal(alone, stack[3:])


@pytest.mark.parametrize(
    "order", [(1, 0), (0, 2), (0, 0), (0, 1, 3)], ids=["reversed", "gap", "twice", "late gap"]
)
def test_slices_that_do_not_follow_each_other_are_no_stack(order: tuple[int, ...]) -> None:
    _, rows = stacked_rows()
    assert base_of([rows[client] for client in order]) is None


def test_client_whose_memory_was_replaced_leaves_the_stack() -> None:
    _, rows = stacked_rows()
    rows[1].data = rows[1].data.clone()
    assert base_of(rows) is None


def test_neighbours_of_two_storages_are_no_stack() -> None:
    memory = torch.arange(8.0).numpy()
    left = torch.from_numpy(memory[:4])
    right = torch.from_numpy(memory[4:])
    assert left.data_ptr() + 16 == right.data_ptr()
    assert base_of([left, right]) is None


def test_other_types_shapes_and_strides_are_no_stack() -> None:
    memory = torch.zeros(16)
    halves = [memory[:4].view(2, 2), memory[4:8].view(4)]
    assert base_of(halves) is None
    as_integers = memory.view(torch.int32)
    assert base_of([memory[:4], as_integers[4:8]]) is None
    columns = [memory.view(4, 4)[:, column] for column in range(2)]
    assert base_of(columns) is None
    assert base_of([memory[:0], memory[:0]]) is None
    assert base_of([torch.empty(2, device="meta")] * 2) is None
    assert base_of([]) is None


def test_scalars_of_a_vector_are_a_stack() -> None:
    steps = torch.arange(3)
    base = base_of(list(steps))
    assert base is not None
    assert torch.equal(base, steps)

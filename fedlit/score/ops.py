"""The operations that a network which is read from a file may use: this list and no other.

All give a new tensor, draw nothing at random, read and write no file, and change nothing in place. A name from a file
is looked up here and nowhere else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["CHECKS", "DTYPES", "FACTORIES", "OPS", "SAME"]

aten: Any = torch.ops.aten

_TENSORS = (
    # layers
    aten.linear.default, aten.addmm.default, aten.mm.default, aten.bmm.default, aten.baddbmm.default,
    aten.matmul.default, aten.einsum.default, aten.dot.default, aten.mv.default,
    aten.conv1d.default, aten.conv2d.default, aten.conv2d.padding, aten.conv1d.padding, aten.convolution.default,
    aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default, aten.layer_norm.default,
    aten.native_layer_norm.default, aten.group_norm.default, aten.rms_norm.default, aten.embedding.default,
    aten.scaled_dot_product_attention.default, aten.lstm.input,
    aten.avg_pool1d.default, aten.avg_pool2d.default, aten.max_pool1d.default, aten.max_pool2d.default,
    aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default,
    # activations
    aten.relu.default, aten.selu.default, aten.elu.default, aten.gelu.default, aten.silu.default, aten.celu.default,
    aten.leaky_relu.default, aten.prelu.default, aten.softplus.default, aten.tanh.default, aten.sigmoid.default,
    aten.hardtanh.default, aten.hardsigmoid.default, aten.hardswish.default, aten.relu6.default, aten.mish.default,
    aten.log_sigmoid.default, aten.glu.default,
    aten.softmax.int, aten.log_softmax.int, aten._softmax.default, aten._log_softmax.default, aten.logsumexp.default,
    # arithmetic
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Scalar, aten.rsub.Tensor,
    aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.div.Tensor_mode, aten.neg.default,
    aten.addcmul.default, aten.addcdiv.default, aten.lerp.Tensor, aten.lerp.Scalar, aten.reciprocal.default,
    aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar, aten.square.default, aten.sqrt.default,
    aten.rsqrt.default, aten.exp.default, aten.expm1.default, aten.log.default, aten.log1p.default, aten.log2.default,
    aten.abs.default, aten.sign.default, aten.sin.default, aten.cos.default, aten.erf.default, aten.floor.default,
    aten.ceil.default, aten.round.default, aten.trunc.default, aten.atan.default, aten.remainder.Scalar,
    aten.clamp.default, aten.clamp.Tensor, aten.clamp_min.default, aten.clamp_max.default,
    aten.sinh.default, aten.cosh.default, aten.tan.default, aten.maximum.default, aten.minimum.default,
    aten.nan_to_num.default,
    # comparison
    aten.eq.Scalar, aten.eq.Tensor, aten.ne.Scalar, aten.ne.Tensor, aten.lt.Scalar, aten.lt.Tensor, aten.le.Scalar,
    aten.le.Tensor, aten.gt.Scalar, aten.gt.Tensor, aten.ge.Scalar, aten.ge.Tensor, aten.isnan.default,
    aten.logical_and.default, aten.logical_or.default, aten.logical_not.default, aten.where.self,
    aten.where.ScalarOther, aten.where.ScalarSelf, aten.masked_fill.Scalar, aten.bitwise_not.default,
    aten.bitwise_and.Tensor, aten.bitwise_or.Tensor,
    # sums over dimensions
    aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.amax.default, aten.amin.default,
    aten.max.dim, aten.min.dim, aten.prod.dim_int, aten.var.correction, aten.std.correction, aten.argmax.default,
    aten.cumsum.default, aten.linalg_vector_norm.default, aten.any.dim, aten.all.dim,
    # shapes
    aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten.unflatten.int, aten.squeeze.dim,
    aten.squeeze.dims, aten.squeeze.default, aten.unsqueeze.default, aten.transpose.int, aten.t.default,
    aten.permute.default, aten.numpy_T.default, aten.mT.default, aten.expand.default, aten.expand_as.default,
    aten.repeat.default, aten.clone.default, aten.contiguous.default, aten.cat.default, aten.stack.default,
    aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int, aten.select.int,
    aten.slice.Tensor, aten.index.Tensor, aten.index_select.default, aten.gather.default, aten.constant_pad_nd.default,
    aten.pad.default, aten.flip.default, aten.movedim.int, aten.one_hot.default,
    # types
    aten.to.dtype, aten._to_copy.default, aten.type_as.default,
    # constants of a shape: what they take is counted before it is allocated
    aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.zeros.default, aten.ones.default,
    aten.full.default, aten.arange.default, aten.arange.start, aten.arange.start_step, aten.new_zeros.default,
    aten.new_ones.default, aten.new_full.default,
)  # fmt: skip


def _size(tensor: Tensor, dim: int) -> int:
    return tensor.size(dim)


def _part(values: Any, place: int) -> Any:
    """One of several results."""
    if not isinstance(values, list | tuple):
        raise TypeError("expected several results")
    return values[place]


def _whole(operation: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def compute(first: int, second: int) -> int:
        if type(first) is not int or type(second) is not int:
            raise TypeError("expected whole numbers")
        return operation(first, second)

    return compute


OPS: Mapping[str, Callable[..., Any]] = {
    **{str(own): own for own in _TENSORS},
    "aten.sym_size.int": _size,
    "getitem": _part,
    "add": _whole(operator.add),
    "sub": _whole(operator.sub),
    "mul": _whole(operator.mul),
    "floordiv": _whole(operator.floordiv),
}
"""Name → what it computes."""

FACTORIES = ("zeros", "ones", "full", "arange")
"""Operations that take no tensor, and so have to be told where their result lies."""

SAME = ("aten.detach.default", "aten.alias.default", "aten.detach_.default", "aten.lift_fresh_copy.default")
"""Operations that give what they take, where nothing is trained: they are not written."""

CHECKS: Mapping[str, Callable[[list[Any], dict[str, Any]], bool]] = {
    # in training it would count rows of a batch, and change its own statistics
    "aten.batch_norm.default": lambda args, kwargs: len(args) > 5 and args[5] is False and not kwargs,
    "aten.scaled_dot_product_attention.default": lambda args, kwargs: (
        (len(args) < 5 or args[4] == 0) and not kwargs.get("dropout_p")
    ),
    # neither dropout nor training, which draw at random
    "aten.lstm.input": lambda args, kwargs: len(args) == 9 and args[5] == 0 and args[6] is False and not kwargs,
}
"""Operation → whether its arguments, as they stand in the file, are those of scoring."""

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}

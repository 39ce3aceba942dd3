"""Every family has cases; they pass an operator that is right, and none that is a little wrong."""

import ast
import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernels.common import planes, scale_layouts
from kernels.kv_record import op as kv_record_op
from kernels.kv_record import reference as kv_record_reference
from kernels.moe_front import op as moe_front_op
from kernels.moe_front import reference as moe_front_reference
from kernels.moe_w2 import op as moe_w2_op
from kernels.mxfp8_gemv import op as mxfp8_gemv_op
from kernels.p2p_allreduce import op as p2p_allreduce_op
from kernels.p2p_allreduce import reference as p2p_allreduce_reference
from kernels.paged_mqa_logits import op as paged_mqa_logits_op
from kernels.paged_mqa_logits import reference as paged_mqa_logits_reference
from kernels.selftest import main, outcome
from kernels.selftest.card import Card
from kernels.skinny_gemm import op as skinny_gemm_op

CARD = Card("cpu", "no card", "0.0")
FAMILIES = Path(__file__).parents[1] / "families.bzl"

Operator = Callable[..., torch.Tensor]


def right_skinny_gemm(
    x: torch.Tensor, weight: torch.Tensor, *, out_dtype: torch.dtype = torch.bfloat16, dependent: bool = False
) -> torch.Tensor:
    return (x.double() @ weight.double().T).to(out_dtype)


def doubles(codes: torch.Tensor, scales: torch.Tensor, swizzled: bool) -> torch.Tensor:
    """The numbers of an MXFP8 matrix of any leading dimensions, as torch reads them."""
    columns = codes.shape[-1] // 32
    rows = codes.numel() // codes.shape[-1]
    plain = scale_layouts.unswizzle(scales.numpy(), rows, columns) if swizzled else scales.numpy()
    powers = torch.exp2(torch.from_numpy(np.ascontiguousarray(plain)).double() - 127).repeat_interleave(32, dim=-1)
    return codes.float().double() * powers.view(codes.shape)


def right_mxfp8_gemv(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    *,
    swizzled: bool,
    packed: bool = False,
    dependent: bool = False,
) -> torch.Tensor:
    if packed:
        words = np.ascontiguousarray(x_scale.numpy())
        x_scale = torch.from_numpy(words.view(np.uint8).reshape(-1, 4 * words.shape[-1]))
    a = doubles(x.contiguous(), x_scale, swizzled and not packed)
    return torch.einsum("m...k,...nk->m...n", a, doubles(weight, weight_scale, swizzled)).bfloat16()


def right_moe_front(
    logits: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, *, alignment: int, group: int, dependent: bool
) -> moe_front_op.MoeFront:
    """The oracle's own outputs, since they are exact; in rows of padding, something else."""
    out = moe_front_op.empty(x, logits.shape[1], alignment, group)
    ids, weights = moe_front_reference.route(logits.numpy(), bias.numpy())
    places = moe_front_reference.place(ids, logits.shape[1], alignment)
    codes, scales = moe_front_reference.quantize(x.float().numpy(), group)
    for tensor, values in zip(out[2:], (*places, weights, ids), strict=True):
        tensor.copy_(torch.from_numpy(values))
    out.a.view(torch.uint8).fill_(0x55)
    for slots, code, scale in zip(places.inv_perm, codes, moe_front_reference.words(scales), strict=True):
        out.a.view(torch.uint8)[slots] = torch.from_numpy(code)
        out.a_scale[slots] = torch.from_numpy(scale)
    return out


def right_moe_w2(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    topk_ids: torch.Tensor,
    base: moe_w2_op.Slots,
    delta: moe_w2_op.Slots | None,
    *,
    missing: torch.Tensor,
    dependent: bool,
    routed: bool,
) -> torch.Tensor:
    """Expert by expert, in torch, from its planes."""
    rows, top = topk_ids.shape
    columns = x.shape[-1]
    n = base.planes.shape[1] * base.planes.shape[2] * 4 // columns
    values = doubles(x, x_scale, swizzled=False).view(rows, -1, columns).expand(rows, top, columns)
    result = torch.zeros(rows, top, n, dtype=torch.bfloat16)
    for expert in topk_ids[topk_ids >= 0].unique().tolist():
        pairs = topk_ids == expert
        for slots, unpack, decode in (
            (delta, planes.unpack_nibbles, planes.decode_nibbles),
            (base, planes.unpack_codes, planes.decode),
        ):
            if slots is not None and slots.scales is not None and slots.table[expert] >= 0:
                slot = int(slots.table[expert])
                scales = planes.unpack_scales(slots.scales[slot].flatten().numpy(), n, columns)
                weight = torch.from_numpy(decode(unpack(slots.planes[slot].flatten().numpy(), n, columns), scales))
                result[pairs] = (values[pairs] @ weight.T).bfloat16()
                break
        else:
            missing += pairs.sum()
    return result


def _arrived(own: np.ndarray, sender: int, world: int, size: int, ll: bool) -> np.ndarray:
    """What a sender's part is, in the memory of the first round."""
    if not ll:
        return np.array(own[p2p_allreduce_reference.data_at(1, sender, world) :][:size])
    slot = own[p2p_allreduce_reference.words_at(1, sender, world) :][: 2 * p2p_allreduce_reference.LL_BYTES]
    places = p2p_allreduce_reference.word_places(size // p2p_allreduce_reference.UNIT_BYTES).ravel()
    return slot.view(np.uint64)[places].astype(np.uint32).view(np.uint8)


def right_p2p_allreduce(
    x: torch.Tensor, out: torch.Tensor, status: int, workspaces: list[int], rank: int, deadline_ns: int, *, ll: bool
) -> None:
    """The first round of a rank, in the memory behind the addresses."""
    world, size, dtype = len(workspaces), x.nbytes, str(x.dtype).removeprefix("torch.")
    own, *peers = (
        np.ctypeslib.as_array((ctypes.c_uint8 * p2p_allreduce_reference.workspace_bytes(world)).from_address(address))
        for address in workspaces
    )
    for peer in peers:
        p2p_allreduce_reference.delivered(peer, 0, world, 1, x.view(torch.uint8).numpy().tobytes(), dtype, ll)
    arrived = [torch.from_numpy(_arrived(own, sender, world, size, ll)).view(x.dtype) for sender in range(1, world)]
    parts = np.stack([part.float().numpy() for part in (x, *arrived)])
    out.copy_(torch.from_numpy(p2p_allreduce_reference.allreduce(parts, dtype)))


def right_paged_mqa_logits(
    q: torch.Tensor,
    q_scale: torch.Tensor | None,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_tables: torch.Tensor,
    schedule_metadata: torch.Tensor,
    max_model_len: int,
) -> torch.Tensor:
    """Key by key from the pages; NaN in columns that no context has."""
    requests, rows = context_lens.shape
    page, width = kv_cache.shape[1], kv_cache.shape[3] - 4
    result = torch.full((requests * rows, max_model_len), float("nan"))
    for i in range(requests):
        pages = kv_cache[block_tables[i][block_tables[i] >= 0].long()].view(-1, page * (width + 4))
        values, scales = pages[:, : page * width].reshape(-1, width), pages[:, page * width :].reshape(-1, 4)
        if q_scale is None:
            query, keys = q[i].double(), values.view(torch.float8_e4m3fn).double()
            factor = scales.view(torch.float32)[:, 0]
        else:
            query, keys = mxfp4(q[i], q_scale[i].view(torch.uint8).view(rows, -1, 4)), mxfp4(values, scales)
            factor = torch.ones(len(keys))
        scores = torch.einsum("rhd,kd->rhk", query, keys).relu()
        logits = torch.einsum("rh,rhk->rk", weights.view(requests, rows, -1)[i].double(), scores) * factor.double()
        for j in range(rows):
            seen = int(context_lens[i, j])
            result[i * rows + j, :seen] = logits[j, :seen].float()
    return result


def right_kv_record(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    *others: torch.Tensor,
    compress_ratio: int,
    eps: float | None = None,
    dependent: bool = False,
    factor: float = 1.0,
) -> None:
    """The oracle's bytes of rows times a factor; `others` are the weight of keys, if they are keys, and the cache."""
    cache, known = others[-1], cos_sin.shape[0]
    memory = cache.numpy().reshape(cache.shape[0], -1)
    at, page = positions.numpy(), cache.shape[1]
    live = kv_record_reference.written(at, slots.numpy(), page * cache.shape[0], known, compress_ratio)
    values = (rows.float() * factor).bfloat16().float().numpy()[live]
    if eps is not None:
        values = kv_record_reference.normalize(values, others[0].float().numpy() * factor, eps)
    first = kv_record_reference.first_of_group(at[live], compress_ratio)
    encoded = kv_record_reference.RECORDS[cache.shape[2]].encode(
        kv_record_reference.rotate(values, cos_sin.numpy()[first])
    )
    kv_record_reference.store(memory, page, slots.numpy()[live], encoded)


def right_kv_record_gather(cache: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Row by row from the pages; zeros where there is no slot."""
    record, page = kv_record_reference.RECORDS[cache.shape[2]], cache.shape[1]
    memory = cache.numpy().reshape(cache.shape[0], -1)
    return torch.from_numpy(kv_record_reference.gather(memory, page, slots.numpy(), record))


def mxfp4(pairs: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Pairs of E2M1 [..., 64] with UE8M0 scales [..., 4], as torch reads them: [..., 128]."""
    nibbles = torch.stack([pairs & 15, pairs >> 4], dim=-1).flatten(-2)
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)[(nibbles & 7).long()]
    signed = torch.where(nibbles >= 8, -numbers, numbers)
    return signed * torch.exp2(scales.double() - 127).repeat_interleave(32, dim=-1)


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts operators in place of the families' own that are right but for a factor."""

    def replace(factor: float) -> None:
        def times(right: Operator) -> Operator:
            return lambda *arguments, **named: right(*arguments, **named) * factor

        def moe_front(*arguments: Any, **named: Any) -> moe_front_op.MoeFront:
            out = right_moe_front(*arguments, **named)
            return out._replace(topk_weights=out.topk_weights * factor)

        def p2p_allreduce(x: torch.Tensor, out: torch.Tensor, *arguments: Any, **more: Any) -> None:
            right_p2p_allreduce(x, out, *arguments, **more)
            out.mul_(factor)

        def schedule(lengths: torch.Tensor, page: int, slots: int) -> torch.Tensor:
            return torch.from_numpy(paged_mqa_logits_reference.schedule(lengths.numpy(), slots))

        monkeypatch.setattr(kv_record_op, "kv_record", functools.partial(right_kv_record, factor=factor))
        monkeypatch.setattr(kv_record_op, "kv_record_key", functools.partial(right_kv_record, factor=factor))
        monkeypatch.setattr(kv_record_op, "kv_record_gather", right_kv_record_gather)
        monkeypatch.setattr(skinny_gemm_op, "skinny_gemm", times(right_skinny_gemm))
        monkeypatch.setattr(mxfp8_gemv_op, "mxfp8_gemv", times(right_mxfp8_gemv))
        monkeypatch.setattr(mxfp8_gemv_op, "mxfp8_grouped_gemv", times(right_mxfp8_gemv))
        monkeypatch.setattr(moe_front_op, "moe_front", moe_front)
        monkeypatch.setattr(moe_w2_op, "moe_w2", times(right_moe_w2))
        monkeypatch.setattr(p2p_allreduce_op, "p2p_allreduce", p2p_allreduce)
        monkeypatch.setattr(paged_mqa_logits_op, "paged_mqa_logits", times(right_paged_mqa_logits))
        monkeypatch.setattr(paged_mqa_logits_op, "paged_mqa_logits_metadata", schedule)

    return replace


def test_every_family_has_cases() -> None:
    tree = ast.parse(FAMILIES.read_text())
    tables = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    assert sorted(ast.literal_eval(tables["FAMILIES"])) == main.families()


@pytest.mark.parametrize("family", main.families())
def test_right_operator_passes(family: str, operators: Callable[[float], None]) -> None:
    operators(1.0)
    found = outcome.of(family, CARD)
    assert found.problem is None
    assert 0 <= found.share <= 1 and (found.share > 0) == (found.bounded > 0)
    assert found.bounded + found.exact >= 10 and found.exact >= 3


@pytest.mark.parametrize("family", main.families())
def test_operator_that_is_one_percent_off_fails(family: str, operators: Callable[[float], None]) -> None:
    operators(1.01)
    found = outcome.of(family, CARD)
    assert found.problem is not None
    assert ("times its bound" in found.problem) == (found.share > 1) == (found.bounded > 0)


@pytest.mark.parametrize("family", main.families())
def test_operator_of_another_device_is_an_outcome(family: str) -> None:
    """The families' own operators, given tensors that are on no GPU."""
    found = outcome.of(family, CARD)
    assert found.problem is not None and found.problem.endswith("is not on a CUDA device; expected one")

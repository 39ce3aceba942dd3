"""The same front as a sequence of torch operators, for the bench, and so that its results can be compared."""

import torch
import torch.nn.functional as functional

from kernels.moe_front.op import TOP, MoeFront


def moe_front(logits: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, alignment: int, out: MoeFront) -> None:
    """Writes to `out` what op.moe_front does for group 128, by tens of launches."""
    score = functional.softplus(logits).sqrt()
    ids = torch.topk(score + bias, TOP).indices
    chosen = score.gather(1, ids)
    out.topk_weights.copy_(chosen / chosen.sum(dim=1, keepdim=True))
    out.topk_ids.copy_(ids)

    grouped = x.float().view(x.shape[0], -1, 128)
    power = (grouped.abs().amax(dim=2).clamp(min=1e-10) / 448).clamp(min=1e-10).log2().ceil()
    codes = (grouped / power.exp2()[:, :, None]).to(torch.float8_e4m3fn).view(x.shape).view(torch.uint8)
    words = (power.int() + 127).to(torch.uint8).view(torch.int32)

    flat = ids.flatten()
    counts = torch.zeros(logits.shape[1], dtype=torch.int64, device=x.device).scatter_add_(
        0, flat, torch.ones_like(flat)
    )
    padded = (counts + alignment - 1) // alignment * alignment
    ordered, order = flat.sort(stable=True)
    shift = (padded.cumsum(0) - padded) - (counts.cumsum(0) - counts)
    places = torch.arange(len(flat), device=x.device) + shift[ordered]
    out.m_indices.fill_(-1)
    out.m_indices[places] = ordered.int()
    out.inv_perm.view(-1)[order] = places.int()
    out.a.view(torch.uint8)[places] = codes[order // TOP]
    out.a_scale[places] = words[order // TOP]

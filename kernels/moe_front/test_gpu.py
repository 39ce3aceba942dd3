"""moe_front against the oracle, on a GPU: every output bit for bit."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.moe_front import reference
from kernels.moe_front.op import MoeFront, moe_front, rows
from kernels.testing.gpu import bits, graph

EXPERTS, K = 384, 5120
# A cluster has eight blocks, which have up to eight tokens each.
BATCHES = (1, 2, 6, 7, 8, 9, 16, 17, 25, 33, 64)
SHORT = (1, 6, 33)
POISON = 0xA5
GUARD = 512  # bytes before and after every output


@dataclass(frozen=True)
class Case:
    """A batch on the GPU, and how it is to be routed."""

    logits: torch.Tensor
    bias: torch.Tensor
    x: torch.Tensor
    scaling_factor: float = 1.0
    is_padding: torch.Tensor | None = None
    token_ids: torch.Tensor | None = None
    image_bias: torch.Tensor | None = None
    image_first: int = 0

    def arguments(self) -> dict[str, Any]:
        """What moe_front takes."""
        return dict(vars(self))

    def tokens(self, first: int, last: int | None = None) -> "Case":
        """Some of the tokens."""
        part = {
            name: tensor[first:last].contiguous()
            for name in ("logits", "x", "is_padding", "token_ids")
            if (tensor := getattr(self, name)) is not None
        }
        return replace(self, **part)


def random(tokens: int, experts: int = EXPERTS, k: int = K, seed: int = 1) -> Case:
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", generator=generator)

    magnitudes = torch.exp2(torch.randint(-8, 9, (tokens, k // 32), device="cuda", generator=generator).float())
    x = normal(tokens, k) * magnitudes.repeat_interleave(32, dim=1)
    return Case(3 * normal(tokens, experts), 0.3 * normal(experts), x.bfloat16())


def with_everything(case: Case) -> Case:
    """The same with padding, images among the tokens, and a factor."""
    m = case.logits.shape[0]
    ids = torch.arange(m, device="cuda") * 2 + 1000
    padding = torch.arange(m, device="cuda") % 5 == 3
    image_bias = case.bias.flip(0).contiguous()
    more = {"is_padding": padding, "token_ids": ids, "image_bias": image_bias, "image_first": 1004}
    return replace(case, scaling_factor=2.5, **more)


class Poisoned:
    """Outputs of POISON bytes in the midst of more of them."""

    def __init__(self, tokens: int, experts: int, k: int, alignment: int, group: int) -> None:
        r = rows(tokens, experts, alignment)
        self._whole: list[torch.Tensor] = []
        self.out = MoeFront(
            self._make(torch.float8_e4m3fn, r, k),
            self._make(torch.int32, k // (4 * group), r).t(),
            self._make(torch.int32, r),
            self._make(torch.int32, tokens, 6),
            self._make(torch.float32, tokens, 6),
            self._make(torch.int32, tokens, 6),
        )

    def _make(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        size = int(np.prod(shape)) * dtype.itemsize
        whole = torch.full((size + 2 * GUARD,), POISON, dtype=torch.uint8, device="cuda")
        self._whole.append(whole)
        return whole[GUARD : GUARD + size].view(dtype).view(*shape)

    def surroundings_are_untouched(self) -> bool:
        """Whether nothing before or after an output was written."""
        return all(bool((w[:GUARD] == POISON).all() and (w[-GUARD:] == POISON).all()) for w in self._whole)


def numbers(tensor: torch.Tensor) -> Any:
    return tensor.float().cpu().numpy() if tensor.is_floating_point() else tensor.cpu().numpy()


def expected(case: Case, alignment: int, group: int) -> MoeFront:
    """The oracle's outputs, as numpy arrays; what is not written is POISON."""
    experts, k = case.logits.shape[1], case.x.shape[1]
    bias = numbers(case.bias)
    if case.token_ids is not None and case.image_bias is not None:
        is_image = reference.image_tokens(numbers(case.token_ids), case.image_first)
        bias = np.where(is_image[:, None], numbers(case.image_bias), bias)
    ids, weights = reference.route(numbers(case.logits), bias, case.scaling_factor)
    if case.is_padding is not None:
        padding = numbers(case.is_padding)[:, None]
        ids, weights = np.where(padding, -1, ids), np.where(padding, np.float32(0), weights)
    places = reference.place(ids, experts, alignment)
    codes, scales = reference.quantize(numbers(case.x), group)
    a = np.full((len(places.m_indices), k), POISON, dtype=np.uint8)
    a_scale = np.full((len(places.m_indices), k // (4 * group)), POISON * 0x01010101, dtype=np.uint32).view(np.int32)
    tokens, slots = np.nonzero(ids >= 0)
    a[places.inv_perm[tokens, slots]] = codes[tokens]
    a_scale[places.inv_perm[tokens, slots]] = reference.words(scales)[tokens]
    return MoeFront(a, a_scale, *places, weights, ids)


def check(case: Case, alignment: int = 64, group: int = 128, dependent: bool = False) -> None:
    """Compares every bit of every output."""
    tokens, experts = case.logits.shape
    poisoned = Poisoned(tokens, experts, case.x.shape[1], alignment, group)
    moe_front(**case.arguments(), alignment=alignment, group=group, out=poisoned.out, dependent=dependent)
    for name, ours, theirs in zip(MoeFront._fields, poisoned.out, expected(case, alignment, group), strict=True):
        found = ours.view(torch.uint8) if name == "a" else ours
        same = np.array_equal(found.cpu().numpy(), theirs, equal_nan=name == "topk_weights")
        assert same, f"{name}, M={tokens}, alignment={alignment}, group={group}"
    assert poisoned.surroundings_are_untouched()


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("alignment", [64, 128])
@pytest.mark.parametrize("m", [pytest.param(m, marks=[pytest.mark.sanitizer] * (m in SHORT)) for m in BATCHES])
def test_against_the_oracle(m: int, alignment: int, group: int) -> None:
    check(random(m, seed=m), alignment, group, dependent=m % 2 == 0)


@pytest.mark.parametrize("m", range(1, 17))
def test_every_batch_of_a_decode_step(m: int) -> None:
    for seed in range(100, 120):
        check(with_everything(random(m, k=512, seed=seed)), 64, 128)


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize(("experts", "k"), [(32, 512), (128, 1536), (256, 7168), (384, 8192)])
def test_other_shapes(experts: int, k: int, group: int) -> None:
    for m in (1, 5, 64):
        check(random(m, experts, k, seed=experts), 64, group)
        check(with_everything(random(m, experts, k, seed=experts)), 64, group)


@pytest.mark.sanitizer
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_images(ids: torch.dtype) -> None:
    case = with_everything(random(12, k=512))
    assert case.token_ids is not None
    near = torch.tensor([0, 1003, 1004, 1005, 1008, 1009, -1, -1004, 2**31 - 1, 1004, 999, 1006], device="cuda")
    check(replace(case, token_ids=near.to(ids), is_padding=None))
    check(replace(case, token_ids=near.to(ids), image_first=0))
    if ids == torch.int64:
        check(replace(case, token_ids=near + 2**32))
        check(replace(case, token_ids=near + 2**40, image_first=2**40 + 1004))


def test_all_tokens_choose_the_same_experts() -> None:
    case = random(64)
    check(replace(case, logits=case.logits[:1].expand(64, -1).contiguous()), 64)


def test_one_expert_is_chosen_by_all() -> None:
    case = random(64, seed=3)
    for expert in (0, 31, 32, 383):
        logits = case.logits.clone()
        logits[:, expert] = 50
        check(replace(case, logits=logits), 64)
        check(replace(case, logits=logits), 128)


def test_every_expert_is_chosen() -> None:
    case = random(64, seed=4)
    logits = torch.full_like(case.logits, -5)
    for m in range(64):
        logits[m, torch.arange(6, device="cuda") * 64 + m] = 5
    check(replace(case, logits=logits), 64)


def test_all_tokens_are_padding() -> None:
    case = random(6)
    check(replace(case, is_padding=torch.ones(6, dtype=torch.bool, device="cuda")))


@pytest.mark.sanitizer
def test_of_equals_the_lower_expert() -> None:
    case, zero = random(16), torch.zeros(EXPERTS, device="cuda")
    check(replace(case, logits=torch.zeros_like(case.logits), bias=zero))
    coarse = (case.logits / 3).round() * 3
    assert len(coarse.unique()) < 15
    check(replace(case, logits=coarse, bias=zero))
    check(replace(case, logits=coarse, bias=(case.bias * 4).round()))


def test_logits_that_are_no_numbers() -> None:
    case = random(16, k=512, seed=5)
    nan, inf = float("nan"), float("inf")
    case.logits[0, 7] = nan
    case.logits[1, ::2] = nan
    case.logits[2] = nan
    case.logits[3, 5:] = nan
    case.logits[4, 100] = inf
    case.logits[5, ::9] = inf
    case.logits[6] = -inf
    case.logits[7, 1:] = -inf
    case.logits[8] = -90
    case.logits[9] = 3e38
    case.logits[10] = torch.linspace(-87, -85, EXPERTS)
    case.logits[11] = torch.linspace(-20, 25, EXPERTS)
    check(case)
    check(replace(case, bias=torch.zeros_like(case.bias)))


def test_biases_that_are_no_numbers() -> None:
    case = random(8, k=512, seed=6)
    case.bias[3], case.bias[4], case.bias[5] = float("nan"), float("inf"), -float("inf")
    check(case)
    check(replace(case, bias=torch.full_like(case.bias, -float("inf"))))


@pytest.mark.parametrize("group", [32, 128])
def test_activations_at_the_edges(group: int) -> None:
    case = random(16, seed=7)
    x = case.x.float()
    every = torch.arange(2**16, dtype=torch.int32, device="cuda").to(torch.int16).view(torch.bfloat16)
    finite = every[every.isfinite()].float()
    x[0], x[1, ::2] = 0, -0.0
    x[2:14] = torch.cat([finite, finite])[: 12 * K].view(12, K)
    x[14] = finite[torch.randperm(len(finite), device="cuda")[:K]]
    x[15, 5], x[15, 700], x[15, 2000] = float("nan"), float("inf"), -float("inf")
    check(replace(case, x=x.bfloat16()), group=group)


@pytest.mark.parametrize("group", [32, 128])
def test_every_step_of_a_scale(group: int) -> None:
    magnitudes = torch.arange(0x7F80, dtype=torch.int16, device="cuda").view(torch.bfloat16)
    columns = K // group
    for first in range(0, 0x7F80, 64 * columns):
        case = random(64, seed=8)
        x = torch.zeros_like(case.x)
        part = magnitudes[first : first + 64 * columns]
        x.view(-1, group)[: len(part), 17] = part
        check(replace(case, x=x), group=group)


def test_bits_of_a_token_are_its_own() -> None:
    case = with_everything(random(64, seed=9))
    whole = moe_front(**case.arguments())
    for m in (1, 6, 16, 24, 40):
        for first, last in ((0, m), (m, 64), (63 - m, 63)):
            part = moe_front(**case.tokens(first, last).arguments())
            assert torch.equal(part.topk_ids, whole.topk_ids[first:last])
            assert torch.equal(bits(part.topk_weights), bits(whole.topk_weights[first:last]))
            live = part.inv_perm >= 0
            ours, theirs = part.inv_perm[live].long(), whole.inv_perm[first:last][live].long()
            assert torch.equal(bits(part.a)[ours], bits(whole.a)[theirs])
            assert torch.equal(part.a_scale[ours], whole.a_scale[theirs])
            assert torch.equal(part.m_indices[ours], whole.m_indices[theirs])


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("m", [1, 6, 16, 64])
def test_a_thousand_runs_have_the_same_bits(m: int, dependent: bool) -> None:
    case = with_everything(random(m, seed=10))
    poisoned = Poisoned(m, EXPERTS, K, 64, 128)
    moe_front(**case.arguments(), alignment=64, out=poisoned.out)
    first = [bits(tensor).clone() for tensor in poisoned.out]
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(1000):
        for tensor in poisoned.out[2:]:
            bits(tensor).fill_(-2)
        moe_front(**case.arguments(), alignment=64, out=poisoned.out, dependent=dependent)
        for tensor, same in zip(poisoned.out, first, strict=True):
            different += (bits(tensor) != same).sum()
    assert different.item() == 0


def test_result_of_the_kernel_ahead_is_seen() -> None:
    sources = [random(6, seed=seed) for seed in range(11, 15)]
    first = sources[0]
    results = [moe_front(source.logits, first.bias, source.x, alignment=64) for source in sources]
    logits, x = torch.zeros_like(first.logits), torch.zeros_like(first.x)
    outs = [Poisoned(6, EXPERTS, K, 64, 128).out for _ in range(40)]

    def step(i: int) -> None:
        x.copy_(sources[i % 4].x)
        torch.mul(sources[i % 4].logits, 1, out=logits)
        moe_front(logits, first.bias, x, alignment=64, out=outs[i], dependent=True)

    captured = graph(step, len(outs))
    for _ in range(20):
        for out in outs:
            for tensor in out:
                bits(tensor).fill_(77)
        captured.replay()
        torch.cuda.synchronize()
        for i, out in enumerate(outs):
            result = results[i % 4]
            live = result.inv_perm.flatten().long()
            assert all(torch.equal(bits(a), bits(b)) for a, b in zip(out[2:], result[2:], strict=True))
            assert torch.equal(bits(out.a)[live], bits(result.a)[live])
            assert torch.equal(out.a_scale[live], result.a_scale[live])


def test_the_stream_of_the_caller() -> None:
    case = random(6, seed=16)
    result = moe_front(**case.arguments())
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        late = case.logits * 1
        out = moe_front(**(case.arguments() | {"logits": late}))
    side.synchronize()
    assert torch.equal(out.topk_ids, result.topk_ids) and torch.equal(out.m_indices, result.m_indices)


@pytest.mark.parametrize("name", ["bias", "x", "is_padding", "token_ids", "image_bias"])
def test_another_device(name: str) -> None:
    arguments = with_everything(random(3, seed=17)).arguments()
    arguments[name] = arguments[name].cpu()
    with pytest.raises((RuntimeError, NotImplementedError), match=f"moe_front: {name}: is not on a CUDA device"):
        moe_front(**arguments, out=Poisoned(3, EXPERTS, K, 128, 128).out)


@pytest.mark.parametrize("field", range(6))
def test_an_output_on_another_device(field: int) -> None:
    out = list(Poisoned(3, EXPERTS, K, 128, 128).out)
    out[field] = out[field].cpu()
    with pytest.raises(RuntimeError, match=f"moe_front: {MoeFront._fields[field]}: is not on a CUDA device"):
        moe_front(**random(3, seed=18).arguments(), out=MoeFront(*out))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_a_second_gpu() -> None:
    case = random(6, seed=19)
    there = moe_front(case.logits.to("cuda:1"), case.bias.to("cuda:1"), case.x.to("cuda:1"))
    assert torch.cuda.current_device() == 0
    assert torch.equal(there.m_indices.cpu(), moe_front(**case.arguments()).m_indices.cpu())
    with pytest.raises(RuntimeError, match="moe_front: x: is on cuda:0; expected cuda:1, where logits is"):
        moe_front(case.logits.to("cuda:1"), case.bias.to("cuda:1"), case.x)


def test_torch_agrees_with_the_registration() -> None:
    case = random(6, k=512, seed=20)
    out = Poisoned(6, EXPERTS, 512, 64, 128).out
    arguments = (case.logits, case.bias, case.x, None, None, None, *out, 64, 128, 1.0, 0)
    # Its test of the schema compares the arguments, which torch cannot for FP8.
    tests = ("test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.moet.moe_front.default, arguments, test_utils=tests)


def test_under_torch_compile() -> None:
    case = random(6, k=512, seed=21)

    def model(logits: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        front = moe_front(logits + 1, case.bias, x)
        return front.topk_weights * 2

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(case.logits, case.x), model(case.logits, case.x))

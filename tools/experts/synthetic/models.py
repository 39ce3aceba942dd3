"""What the checkpoints of the models look like: names, types and configuration."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Model:
    """A model's way of storing routed experts.

    Attributes:
        scheme: as Checkpoint has it.
        prefix: ahead of the number of a layer.
        block: between the number of a layer and "experts".
        matrices: w1, w3 and w2 to the checkpoint's names.
        parts: weight, scale and scale_2 to the checkpoint's names.
        first: the first layer with routed experts.
        positive_zeros: every zero is +0, about one in six.
        degrees: of freedom of the weights' distribution.
        config: of the real model, without its geometry.
        text: where config.json has what belongs to the language model; "" is at its top.
    """

    scheme: str
    prefix: str
    block: str
    matrices: dict[str, str]
    parts: dict[str, str]
    first: int
    config: dict[str, Any]
    positive_zeros: bool = False
    degrees: int = 3
    text: str = ""


_V4 = {"w1": "w1", "w3": "w3", "w2": "w2"}
_HF = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
_NVFP4_PARTS = {"weight": "weight", "scale": "weight_scale", "scale_2": "weight_scale_2"}
_MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}

MODELS = {
    "deepseek-v4-flash": Model(
        "mxfp4", "layers.", "ffn", _V4, {"weight": "weight", "scale": "scale"}, 0,
        {"model_type": "deepseek_v4", "expert_dtype": "fp4", "swiglu_limit": 10.0, "num_experts_per_tok": 6,
         "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}},
    ),
    "deepseek-v4.1-flash": Model(
        "mxfp4", "layers.", "ffn", _V4, {"weight": "weight", "scale": "scale"}, 0,
        {"model_type": "deepseek_v41", "expert_dtype": "fp4", "swiglu_limit": 10.0, "num_experts_per_tok": 6,
         "quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32], "scale_fmt": "ue8m0"}},
    ),
    "glm-5.2-nvfp4": Model(
        "nvfp4", "model.layers.", "mlp", _HF, _NVFP4_PARTS, 3,
        {"model_type": "glm_moe_dsa", "num_experts_per_tok": 8, "first_k_dense_replace": 3,
         "quantization_config": _MODELOPT},
    ),
    "kimi-k2.7-nvfp4": Model(
        "nvfp4", "language_model.model.layers.", "mlp", _HF, _NVFP4_PARTS, 1,
        {"model_type": "kimi_k2", "num_experts_per_tok": 8, "first_k_dense_replace": 1,
         "quantization_config": _MODELOPT},
        positive_zeros=True, degrees=6, text="text_config",
    ),
    "deepseek-v3-fp8": Model(
        "fp8_block", "model.layers.", "mlp", _HF, {"weight": "weight", "scale": "weight_scale_inv"}, 3,
        {"model_type": "deepseek_v3", "num_experts_per_tok": 8, "first_k_dense_replace": 3,
         "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}},
    ),
}  # fmt: skip


def config(model: Model, layers: int, experts: int, hidden: int, intermediate: int) -> dict[str, Any]:
    """config.json of such a checkpoint; `layers` are those with routed experts."""
    geometry = {
        "num_hidden_layers": model.first + layers,
        "n_routed_experts": experts,
        "hidden_size": hidden,
        "moe_intermediate_size": intermediate,
    }
    own = {key: value for key, value in model.config.items() if key != "quantization_config"}
    outer = {"quantization_config": model.config["quantization_config"]}
    if not model.text:
        return own | geometry | outer
    return {"model_type": "kimi_k25", model.text: own | geometry} | outer

"""What vLLM's own parser makes of arguments of `vllm serve`, and its environment of variables.

argv[1] is a JSON list of argument lists, argv[2] one of variables' names. Printed: for each list, what is wrong with
it, and what was parsed; and the variables that vLLM does not know.
"""

import argparse
import contextlib
import inspect
import io
import json
import sys
import typing
from typing import Any

from pydantic import TypeAdapter
from vllm import envs
from vllm.config.speculative import SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.kv_offload.factory import OffloadingSpecFactory
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

_HINTS = typing.get_type_hints(SpeculativeConfig)


def speculative_faults(given: dict[str, Any] | None) -> list[str]:
    """What SpeculativeConfig would refuse; vLLM makes one only once it has the model."""
    faults = []
    for key, value in (given or {}).items():
        if key not in _HINTS:
            faults.append(f"speculative_config has no {key}")
            continue
        try:
            TypeAdapter(_HINTS[key]).validate_python(value)
        except ValueError as error:
            faults.append(f"speculative_config.{key}: {error}")
    return faults


def offload_faults(extra: dict[str, Any]) -> list[str]:
    """What KV offloading would refuse once it starts: a specification, a tier, or an argument of a tier."""
    faults = []
    spec = extra.get("spec_name", "CPUOffloadingSpec")
    if spec not in OffloadingSpecFactory._registry:
        faults.append(f"no offloading specification {spec}")
    for tier in extra.get("secondary_tiers", []):
        if tier["type"] not in SecondaryTierFactory._registry:
            faults.append(f"no secondary tier {tier['type']}")
            continue
        known = inspect.signature(SecondaryTierFactory.get_tier_class(tier)).parameters
        faults += [f"tier {tier['type']} takes no {key}" for key in tier if key != "type" and key not in known]
    return faults


def parsed(parser: FlexibleArgumentParser, options: set[str], arguments: list[str]) -> dict[str, Any]:
    """One list, parsed. A beginning of a flag, which the parser would take, is a fault."""
    names = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    faults = [f"{name} is no flag" for name in names if name not in options]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = parser.parse_args(arguments)
            ServeSubcommand().validate(found)
            engine = AsyncEngineArgs.from_cli_args(found)
    except (SystemExit, ValueError) as error:
        return {"faults": [*faults, said.getvalue().strip() or str(error)]}
    transfer = engine.kv_transfer_config
    extra = transfer.kv_connector_extra_config if transfer else {}
    return {
        "faults": faults + speculative_faults(engine.speculative_config) + offload_faults(extra),
        "attention": {
            "indexer_kv_dtype": engine.attention_config.indexer_kv_dtype,
            "indexer_tp_shard_min_rows": engine.attention_config.indexer_tp_shard_min_rows,
        },
        "host": found.host,
        "model": found.model_tag,
        "name": found.served_model_name,
        "nodes": [engine.nnodes, engine.node_rank, engine.master_addr, found.headless],
        "numbers": [engine.max_model_len, engine.max_num_seqs, engine.gpu_memory_utilization],
        "offload": [engine.kv_offloading_size, extra],
        "speculative": engine.speculative_config,
    }


def main() -> None:
    """Runs the command line above."""
    parser = FlexibleArgumentParser()
    verbs: argparse._SubParsersAction[Any] = parser.add_subparsers(dest="subparser")
    serve = ServeSubcommand().subparser_init(verbs)
    options = set(serve._option_string_actions)
    lists = [parsed(parser, options, arguments) for arguments in json.loads(sys.argv[1])]
    unknown = [name for name in json.loads(sys.argv[2]) if name not in envs.environment_variables]
    print(json.dumps({"lists": lists, "unknown_variables": unknown}))


if __name__ == "__main__":
    main()

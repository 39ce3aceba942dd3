"""moet experts dequantize."""

import argparse
from pathlib import Path

from tools.cli.output import Output
from tools.experts.quantize import dequantize, options, wording
from tools.experts.quantize.packs import Pack
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("pack", type=Path, metavar="PACK", help="folder of a pack")
    parser.add_argument("out", type=Path, metavar="DIR", help="folder that is made")
    parser.add_argument("--delta", type=Path, metavar="DIR", help="the pack's delta: its 4-bit weights are written")
    parser.add_argument("--form", choices=dequantize.FORMS, default="bf16", help="of the weights (default: bf16)")
    parser.add_argument("--layers", type=options.layers, metavar="N", help="only these layers, such as 3,5-7")


def run(asked: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    with Pack(asked.pack, asked.delta) as pack, out.progress() as bar:
        layers = len(asked.layers or pack.base.header.layers)
        bar.start("dequantize", dequantize.total(pack, asked.form, layers))
        written = dequantize.write(pack, asked.out, asked.form, asked.layers, bar.advance)
        content = pack.base.content
    out.line(f"{asked.out}: {wording.size(written)} of {asked.form}")
    out.document(
        {
            "schema": "moet.experts.dequantize.v1",
            "path": str(asked.out),
            "form": asked.form,
            "bytes": written,
            "content": content,
        }
    )
    return 0


VERB = Verb(
    summary="a pack back to safetensors",
    description="""Writes the weights that a pack stands for, with the checkpoint's names, one file a layer: their 2-bit
values, or with --delta their 4-bit ones. bf16 and f32 hold them exactly, up to 2^128; mxfp4 writes the nibbles and
scales, which the other verbs read as a checkpoint. DIR is there whole at the end, or not at all.""",
    arguments=arguments,
    run=run,
    examples=(
        ("experts dequantize /packs/glm /tmp/glm-2bit --layers 3", "one layer, in bfloat16"),
        ("experts dequantize /packs/glm /tmp/glm-4bit --delta /packs/glm-quintal --form mxfp4", "all 4 bits, as MXFP4"),
    ),
)

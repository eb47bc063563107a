"""A phase of a training that lives outside the package: supervised steps on the best of each group.

It samples several workflows for each question, plays them, and learns the right one that cost the
least. ``docs/training.md`` explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import Trainer

from openconductor.errors import TrainingStopped
from openconductor.reward import Scored, answered_dollars
from openconductor.training.completions import complete, draw_pool, write_prompt
from openconductor.training.scoring import Sampled, check_masked, on_first
from openconductor.training.setup import Learner, Phase, Setup, training_problems
from openconductor.training.supervised import Row, make_row, supervise
from openconductor.training.train_config import SupervisedConfig


@dataclass(frozen=True)
class BestOfGroup:
    """The settings of the phase: how much is sampled, and how much is learnt of it."""

    questions: int
    completions: int
    learning: SupervisedConfig

    def phase(self) -> Phase:
        """Return the phase, for ``train(..., phases=…)``."""
        return Phase("best_of_group", self.run)

    def run(self, setup: Setup, learner: Learner) -> Trainer:
        """Sample and play with the model as it is, then learn the best of each group.

        A resumed run starts from the same model, so it samples the same texts. The journal holds
        the calls that were paid for.
        """
        sampled, prompts = self._sample(setup, learner)
        best = on_first(lambda: self._find_best(setup, sampled))
        if not best:
            raise TrainingStopped("best of group: no workflow was right, so nothing can be learnt")

        def row(index: int) -> Row:
            place = best[index % len(best)]
            return make_row(learner.tokenizer, prompts[place], sampled[place].completion.text)

        return supervise(setup, learner, self.learning, row)

    def _sample(self, setup: Setup, learner: Learner) -> tuple[list[Sampled], list[str]]:
        config = setup.config
        problems = training_problems(config, setup.questions)[: self.questions]
        attempts = [problem for problem in problems for _ in range(self.completions)]
        prompts: list[str] = []
        for problem in attempts:
            pool = draw_pool(config, setup.pool, problem.id)
            question = setup.questions.planned(problem)
            prompts.append(write_prompt(learner.tokenizer, question, config, pool))
        completions = complete(
            learner.model,
            learner.tokenizer,
            prompts,
            config=config,
            temperature=config.rollout.temperature,
            seed=config.seed,
        )
        sampled: list[Sampled] = []
        for place, (problem, completion) in enumerate(zip(attempts, completions, strict=True)):
            repeat = place % self.completions
            sampled.append(Sampled(problem, completion, repeat, problem.id))
        return sampled, prompts

    def _find_best(self, setup: Setup, sampled: Sequence[Sampled]) -> list[int]:
        """Play the workflows; return the place of the best right one of each group."""
        assert setup.scorer is not None
        scored = setup.scorer.score(sampled, phase="best of group")
        check_masked(scored)

        def cost(place: int) -> tuple[float, int]:
            return answered_dollars(scored[place].episode), place

        best: list[int] = []
        for start in range(0, len(scored), self.completions):
            right = _right_places(scored, range(start, start + self.completions))
            if right:
                best.append(min(right, key=cost))
        return best


def _right_places(scored: Sequence[Scored], places: range) -> list[int]:
    return [place for place in places if scored[place].correct]

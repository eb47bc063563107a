"""Learning: a cold start, then GRPO through TRL. In: a recipe. Out: a run folder with checkpoints and curves."""

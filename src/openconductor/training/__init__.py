"""Learning: a cold start, then GRPO through TRL. In: a recipe. Out: a run folder with checkpoints and curves.

Needs the extra ``train`` (torch, transformers, trl); importing this package alone does not import them.
"""

"""Runs as the page shows them: where their folders are, and the numbers of evaluations."""

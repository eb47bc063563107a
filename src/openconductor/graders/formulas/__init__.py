"""Formulas, compared by math-verify in worker processes that can be killed.

``math_text`` prepares what is compared. ``math_workers`` keeps the processes, and ``math_worker`` is
their program.
"""

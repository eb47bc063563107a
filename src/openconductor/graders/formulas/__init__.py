"""Formulas, compared by math-verify in worker processes that can be killed.

``math_text`` prepares what is compared. ``math_workers`` keeps the processes, whose program is
``math_worker``.
"""

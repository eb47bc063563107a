"""Formulas, compared by math-verify in worker processes that can be killed.

``text`` prepares what is compared, ``workers`` keeps the processes, and ``worker`` is what runs in
one of them.
"""

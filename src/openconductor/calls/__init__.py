"""One call of a worker: whether it is made, how often, and what it costs.

``Worker`` (``worker.py``) is what pools hold. It calls a provider through ``Policies`` (retries, limits, circuit) and
``Meter`` (one bill an attempt). ``BudgetMeter`` (``budget.py``) is what a question may spend, and ``prices.py`` finds
published prices.
"""

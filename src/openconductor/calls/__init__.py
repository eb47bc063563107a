"""One call of a worker: whether it is made, how often, and what it costs.

Pools hold ``Worker`` (``worker.py``). It calls a provider through ``Policies`` (retries, circuit,
limits) and ``Meter`` (one bill an attempt). ``BudgetMeter`` (``budget.py``) is the budget of a
question, ``options.py`` lays a request's options over a worker's, and ``prices.py`` finds published
prices.
"""

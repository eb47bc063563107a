"""Baselines: other ways to answer with a pool, measured beside the Conductor. In: a question. Out: an Episode.

``BASELINES`` names them lazily as ``module:attribute``; each attribute makes an ``Orchestrator`` (its first argument is
the pool), so whatever can be evaluated or served takes a baseline as it takes the Conductor.
"""

BASELINES: dict[str, str] = {
    "planned": "openconductor.baselines.planned:PlannedOrchestrator",
    "random": "openconductor.baselines.random_workflow:RandomWorkflows",
    "single": "openconductor.baselines.single:SingleWorker",
}

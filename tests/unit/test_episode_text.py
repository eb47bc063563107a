"""An episode in a line, and an episode as people read it."""

from __future__ import annotations

import openconductor as oc
from openconductor.testing import Scripted

PLAN = oc.render_workflow(oc.Workflow((oc.Step(0, "Add."), oc.Step(1, "Check.", "all"))))


def asked(plan: str, *answers: object) -> oc.Episode:
    workers = [oc.Worker(Scripted(answer), name=f"w{n}") for n, answer in enumerate(answers)]
    conductor = oc.Conductor(Scripted(plan), pool=oc.WorkerPool(workers))
    return conductor.ask_sync([oc.Message("user", "17 + 25? " * 99)])


def test_an_episode_is_short_whatever_it_holds() -> None:
    for episode in (asked(PLAN, "42", "42" * 999), asked("x" * 999, "1", "2")):
        assert len(repr(episode)) <= 200
        assert repr(episode).startswith("Episode('17 + 25? ")
        assert episode.id in repr(episode)
    assert "error=WorkflowError(" in repr(episode)


def test_an_episode_shows_who_did_what(capsys) -> None:
    asked(PLAN, "42", "It is 42.").show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:-1] == [
        "Round 0",
        "  0. w0: Add.",
        "     -> 42",
        "  1. w1 (sees 0): Check.",
        "     -> It is 42.",
        "Answer: It is 42.",
    ]
    assert lines[-1].startswith("Cost: 45 tokens, $0, 0.0 s; calls of unknown price: 3")
    asked(PLAN, oc.WorkerTimeout("too slow"), "").show()
    assert "     failed: worker 'w0': too slow" in capsys.readouterr().out
    asked("I cannot.", "", "").show()
    shown = capsys.readouterr().out
    assert "  No workflow: missing_list" in shown and "No answer: missing_list" in shown

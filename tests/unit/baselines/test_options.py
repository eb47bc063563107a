"""What baselines take: options out of their range, and encoders that are not installed, are typed errors that help."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planted import planted_pool
from test_baselines import OPTIONS

from openconductor.baselines import make_baseline
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool


def pool() -> WorkerPool:
    return planted_pool(w0=lambda *_: "4", w1=lambda *_: "5", w2=lambda *_: "4")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("consensus", {"n": 0}, r"Consensus\.n: got 0"),
        ("consensus", {"n": True}, r"Consensus\.n: got True"),
        ("consensus", {"key": "upper"}, r"Consensus\.key"),
        ("consensus", {"worker": 1.0}, "worker 1.0 is not in the pool"),
        ("context", {"times": 0}, r"LongContext\.times"),
        ("context", {"max_tokens": -1}, r"LongContext\.max_tokens"),
        ("reflection", {"n": 2.5}, r"Reflection\.n"),
        ("reflection", {"may_stop": "yes"}, r"Reflection\.may_stop"),
        ("moa", {"layers": 0}, r"MixtureOfAgents\.layers"),
        ("random", {"max_steps": "3"}, r"RandomWorkflows\.max_steps"),
        ("random", {"seed": "x"}, r"RandomWorkflows\.seed"),
        ("explorer", {"seed": -1}, r"Explorer\.seed"),
        ("routerdc", {"seed": "x"}, r"RouterDC\.seed"),
        ("routerdc", {"encoder": 3}, "encoder: got 3"),
        ("masrouter", {"encoder": 3}, "encoder: got 3"),
        ("smoothie", {"neighbours": -1}, r"Smoothie\.neighbours"),
        ("smoothie", {"encoder": 3}, "encoder: got 3"),
    ],
)
def test_an_option_out_of_its_range_says_where_what_was_got_and_what_was_expected(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make_baseline(name, pool(), **(OPTIONS[name] | options))
    assert "expected" in str(caught.value)


@pytest.mark.parametrize("name", ["routerdc", "masrouter", "smoothie"])
def test_a_sentence_encoder_that_is_not_installed_says_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match="pip install sentence-transformers; the offline encoders are"):
        make_baseline(name, pool(), **(OPTIONS[name] | {"encoder": "all-mpnet-base-v2"}))
    make_baseline(name, pool(), **OPTIONS[name])  # with TF-IDF nobody asks for it

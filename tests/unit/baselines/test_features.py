"""Text encoders and the numerical pieces: fitted where they should be, saved and read back, right in the limit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from topics import draw_topics

from openconductor.baselines.features import (
    Encoder,
    Hashed,
    SentenceEncoder,
    Tfidf,
    encoder_from_json,
    encoder_to_json,
    fit_encoder,
)
from openconductor.baselines.fitting import Adam, additive_scores, cluster, fit_additive, fit_costs, log_loss, sigmoid
from openconductor.errors import ConfigError

TEXTS = [question for question, _ in draw_topics(40, seed=0)]


@pytest.mark.parametrize("name", ["tfidf", "hashed"])
def test_rows_have_length_one_and_equal_texts_equal_rows(name: str) -> None:
    rows = fit_encoder(name, TEXTS)([TEXTS[0], TEXTS[1], TEXTS[0]])
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert (rows[0] == rows[2]).all()
    assert rows[0] @ rows[1] < 1


def test_tfidf_knows_only_what_it_was_fitted_on() -> None:
    encoder = Tfidf.fit(TEXTS)
    assert not encoder(["xylophone zebra"]).any()
    assert (encoder(["planet xylophone"]) == encoder(["planet zebra"])).all()
    assert len(Tfidf.fit(TEXTS, features=10).terms) == 10
    with pytest.raises(ConfigError, match="expected texts with words"):
        Tfidf.fit(["", "…"])


def test_single_characters_are_words_for_they_may_be_whole_answers() -> None:
    encoder = fit_encoder("tfidf", ["4", "C", "7"])
    assert (encoder(["4"]) @ encoder(["4", "7"]).T).round(6).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("name", ["tfidf", "hashed"])
def test_the_sign_of_a_number_counts_and_a_hyphen_or_a_difference_is_none(name: str) -> None:
    texts = ["Answer: -5", "Answer: 5", "case 3-4", "case 3 4", "well-known", "well known"]
    minus, plus, hyphen, space, joined, apart = fit_encoder(name, texts)(texts)
    assert minus @ plus < 0.9
    assert hyphen @ space == pytest.approx(1)
    assert joined @ apart == pytest.approx(1)


@pytest.mark.parametrize("encoder", [Tfidf.fit(TEXTS), Hashed(256)], ids=["tfidf", "hashed"])
def test_an_encoder_comes_back_from_json_as_it_was(encoder: Encoder) -> None:
    again = encoder_from_json(json.loads(json.dumps(encoder_to_json(encoder))))
    assert again == encoder
    assert (again(TEXTS) == encoder(TEXTS)).all()


def test_a_sentence_encoder_is_saved_by_name_and_loaded_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = fit_encoder("some/model", TEXTS)
    assert encoder_from_json(encoder_to_json(encoder)) == encoder == SentenceEncoder("some/model")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match="pip install sentence-transformers"):
        encoder(["text"])


def test_a_sentence_encoder_asks_the_library_for_unit_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    class Library:
        class SentenceTransformer:
            def __init__(self, model: str) -> None:
                loaded.append(model)
                if model == "absent":
                    raise OSError("not found")

            def encode(self, texts: list[str], *, normalize_embeddings: bool, show_progress_bar: bool) -> object:
                assert normalize_embeddings and not show_progress_bar
                return np.ones((len(texts), 1), dtype=np.float32)

    monkeypatch.setitem(sys.modules, "sentence_transformers", Library)
    encoder = SentenceEncoder("some/model")
    assert encoder(["a", "b"]).shape == (2, 1)
    assert encoder(["c"]).dtype == np.float64
    assert loaded == ["some/model"]
    with pytest.raises(ConfigError, match="'absent': not found"):
        SentenceEncoder("absent")(["a"])


def test_a_function_is_its_own_encoder_and_cannot_be_saved() -> None:
    def length(texts: object) -> np.ndarray:
        return np.ones((1, 1))

    assert fit_encoder(length, TEXTS) is length
    with pytest.raises(ConfigError, match="expected a name or a function"):
        fit_encoder(3, TEXTS)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a function cannot be saved"):
        encoder_to_json(length)
    with pytest.raises(ConfigError, match="got the kind 'x'"):
        encoder_from_json({"kind": "x"})


# ── the numerical pieces ─────────────────────────────────────────────────────────────────────────────────────────────
def test_clusters_are_those_that_the_rows_fall_into() -> None:
    rows = np.concatenate([np.random.default_rng(0).normal(centre, 0.1, (20, 2)) for centre in (0, 5, 9)])
    found = cluster(rows, 3, seed=0)
    assert [len(set(found[start : start + 20].tolist())) for start in (0, 20, 40)] == [1, 1, 1]
    assert len(set(found.tolist())) == 3
    assert set(cluster(np.ones((4, 2)), 3, seed=0).tolist()) == {0}


def test_adam_ends_at_the_minimum_of_a_bowl() -> None:
    place, target = np.array([4.0, -3.0]), np.array([1.0, 2.0])
    adam = Adam([place], rate=0.1)
    adam.step([2 * (place - target)])
    assert np.allclose(place, [3.9, -2.9])  # the first step has the length of the rate, whatever the slope
    for _ in range(500):
        adam.step([2 * (place - target)])
    assert np.allclose(place, target, atol=1e-3)


def test_an_additive_model_finds_the_log_odds_that_it_was_drawn_from() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.ones((4000, 1)), rng.normal(size=(4000, 2))], axis=1)
    parts = (rng.random((4000, 3)) < 0.5).astype(float)
    truth = rng.normal(size=(3, 3))
    chances = 1 / (1 + np.exp(-((rows @ truth.T) * parts).sum(axis=1)))
    place = np.arange(4000)
    assert np.allclose(fit_additive(rows, place, parts, chances, weight_decay=1e-6), truth, atol=1e-3)
    drawn = (rng.random(4000) < chances).astype(float)
    found = fit_additive(rows, place, parts, drawn, weight_decay=1e-6)
    assert np.allclose(found, truth, atol=0.3)
    assert abs(fit_additive(rows, place, parts, drawn, weight_decay=1e9)).max() < 1e-3
    # Trials share their questions' rows: in another order, the same model.
    order = rng.permutation(4000)
    again = fit_additive(rows[order], np.argsort(order), parts, drawn, weight_decay=1e-6)
    assert np.allclose(again, found, atol=1e-3)
    scores = additive_scores(rows, place, parts, truth)
    assert log_loss(scores, chances) < log_loss(additive_scores(rows, place, parts, found), chances)
    assert log_loss(np.zeros(1), np.ones(1)) == pytest.approx(np.log(2))


def test_costs_are_shared_out_among_the_parts() -> None:
    parts = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert np.allclose(fit_costs(parts, np.array([1.0, 4.0, 7.0])), [1.0, 3.0], atol=0.01)
    assert sigmoid(0.0) == 0.5
    assert sigmoid(-800.0) == 0.0

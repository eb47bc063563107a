"""Texts as vectors: the one thing that the trained routers know about a question.

In: texts. Out: an array of one row a text, of unit length (0 where a text has nothing that the encoder knows).

An encoder is any function of that kind. Two are offline and need no model: TF-IDF, fitted on training questions alone,
and hashed words, which are fitted on nothing. Any model of sentence-transformers is a third, by its name.
"""

# scikit-learn has no type stubs: what comes out of it may be of unknown type in this file.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from openconductor.baselines.observed import field as entry
from openconductor.errors import ConfigError

Floats = NDArray[np.float64]
Encoder = Callable[[Sequence[str]], Floats]
"""``encoder(texts_N) -> rows_N_D``."""

TFIDF = "tfidf"
HASHED = "hashed"
FEATURES = 2048
"""The most words and pairs of words that TF-IDF tells apart: the most frequent ones of the training texts."""
BUCKETS = 4096

_WORDS = r"(?u)(?:(?<![\w)])[-−](?=\d))?\b\w+\b"
# Single letters and digits count, for they are whole answers, and so does the sign of a number: -5 is not 5.


@dataclass(frozen=True)
class Tfidf:
    """Words and pairs of words, weighted by how rare they are in the texts that it was fitted on.

    Attributes:
        terms: what is counted, in the order of the columns.
        idf: the weight of each.
    """

    terms: tuple[str, ...]
    idf: tuple[float, ...]

    @classmethod
    def fit(cls, texts: Sequence[str], *, features: int = FEATURES) -> Tfidf:
        """Learn terms and weights from texts.

        Raises:
            ConfigError: there is no word in them.
        """
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(max_features=features, **_SETTINGS)
        try:
            vectorizer.fit(list(texts))
        except ValueError as error:
            raise ConfigError(f"TF-IDF: {error}; expected texts with words") from error
        return cls(tuple(map(str, vectorizer.get_feature_names_out())), tuple(map(float, vectorizer.idf_)))

    def __call__(self, texts: Sequence[str]) -> Floats:
        """One row a text, of length 1, or 0 where no term is known."""
        return np.asarray(self._vectorizer.transform(list(texts)).toarray(), dtype=np.float64)

    @cached_property
    def _vectorizer(self) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(vocabulary={term: index for index, term in enumerate(self.terms)}, **_SETTINGS)
        vectorizer.idf_ = np.asarray(self.idf)
        return vectorizer


_SETTINGS: dict[str, Any] = {"ngram_range": (1, 2), "sublinear_tf": True, "token_pattern": _WORDS}


@dataclass(frozen=True, slots=True)
class Hashed:
    """Words and pairs of words, each in the bucket that its hash says; fitted on nothing."""

    buckets: int = BUCKETS

    def __call__(self, texts: Sequence[str]) -> Floats:
        """One row a text, of length 1, or 0 where it has no word."""
        from sklearn.feature_extraction.text import HashingVectorizer

        vectorizer = HashingVectorizer(n_features=self.buckets, ngram_range=(1, 2), token_pattern=_WORDS)
        rows: Any = vectorizer.transform(list(texts))
        return np.asarray(rows.toarray(), dtype=np.float64)


@dataclass(frozen=True)
class SentenceEncoder:
    """A model of sentence-transformers, loaded when it is first used.

    Attributes:
        model: its name or folder.
    """

    model: str
    _loaded: list[Any] = field(default_factory=list[Any], repr=False, compare=False)

    def __call__(self, texts: Sequence[str]) -> Floats:
        """One row a text, of length 1.

        Raises:
            ConfigError: sentence-transformers is not installed, or has no such model.
        """
        if not self._loaded:
            self._loaded.append(_sentence_model(self.model))
        rows = self._loaded[0].encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(rows, dtype=np.float64)


def _sentence_model(model: str) -> Any:
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise ConfigError(
            f"encoder {model!r}: {error}; expected sentence-transformers to be installed: pip install "
            f"sentence-transformers; the offline encoders are {TFIDF!r} and {HASHED!r}"
        ) from error
    try:
        return library.SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise ConfigError(f"encoder {model!r}: {error}; expected a model of sentence-transformers") from error


def fit_encoder(encoder: str | Encoder, texts: Sequence[str]) -> Encoder:
    """The encoder that is named, fitted where it needs that; a function is its own encoder.

    Args:
        encoder: ``tfidf``, ``hashed``, the name of a model of sentence-transformers, or a function.
        texts: of training; no others may be among them.

    Raises:
        ConfigError: there is no word in the texts, or the encoder is neither a name nor a function.
    """
    if not isinstance(encoder, str):
        if not callable(encoder):
            raise ConfigError(f"encoder: got {encoder!r}, expected a name or a function from texts to rows")
        return encoder
    if encoder == TFIDF:
        return Tfidf.fit(texts)
    return Hashed() if encoder == HASHED else SentenceEncoder(encoder)


def encoder_to_json(encoder: Encoder) -> dict[str, object]:
    """An encoder as plain values.

    Raises:
        ConfigError: it is a plain function, which cannot be written down.
    """
    named = cast("object", encoder)  # a class's instances are functions too, which pyright does not take for granted
    match named:
        case Tfidf():
            return {"kind": TFIDF, "terms": list(named.terms), "idf": list(named.idf)}
        case Hashed():
            return {"kind": HASHED, "buckets": named.buckets}
        case SentenceEncoder():
            return {"kind": "sentence-transformers", "model": named.model}
        case _:
            raise ConfigError(f"encoder {encoder!r}: a function cannot be saved; expected one that is named")


def encoder_from_json(data: Mapping[str, Any]) -> Encoder:
    """The encoder of ``encoder_to_json``'s values.

    Raises:
        ConfigError: they are none.
    """
    match entry(data, "kind", "encoder"):
        case "tfidf":
            terms, idf = (cast("Sequence[Any]", entry(data, name, "encoder")) for name in ("terms", "idf"))
            if len(terms) != len(idf):
                raise ConfigError(f"encoder: got {len(terms)} terms and {len(idf)} weights, expected one weight a term")
            return Tfidf(tuple(map(str, terms)), tuple(map(float, idf)))
        case "hashed":
            return Hashed(cast("int", entry(data, "buckets", "encoder")))
        case "sentence-transformers":
            return SentenceEncoder(cast("str", entry(data, "model", "encoder")))
        case other:
            raise ConfigError(f"encoder: got the kind {other!r}, expected tfidf, hashed or sentence-transformers")


def array_field(data: Mapping[str, Any], name: str, what: str, *shape: int | None) -> Floats:
    """One entry of a JSON mapping as an array of numbers.

    Args:
        data: the mapping.
        name: the entry.
        what: what the mapping is, for the message.
        shape: how long it must be along each axis; None is any length.

    Raises:
        ConfigError: it is not there, holds something else than numbers, or has another shape.
    """
    try:
        found = np.asarray(entry(data, name, what), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}.{name}: {error}; expected a table of numbers") from error
    sizes = zip(shape, found.shape, strict=True) if found.ndim == len(shape) else [(-1, 0)]
    if any(wanted not in (None, size) for wanted, size in sizes):
        raise ConfigError(f"{what}.{name}: got the shape {found.shape}, expected {shape}")
    return found

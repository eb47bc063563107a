"""A small replay table: three models over questions of two categories, two samples of the first."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from openconductor.providers.replay_pool import cells_of, write_table
from openconductor.types import Usage

PRICED = Usage(input_tokens=7, output_tokens=3, dollars=Decimal("0.0000001"), seconds=0.5)


def row(
    number: int, split: str, category: str, answer: str, a: str, b: str, c: str
) -> dict[str, str]:
    """One question; ``a`` is two letters, a sample each, "-" for none."""
    cells = {"id": f"mine/{number}", "category": category, "split": split, "answer": answer}
    cells |= cells_of(
        "a", [(letter.replace("-", ""), Usage(output_tokens=10 + number)) for letter in a]
    )
    return cells | cells_of("b", [(b, Usage())]) | cells_of("c", [(c, PRICED)])


ROWS = (
    *(row(number, "train", "law", "A", "AA", "B", "C") for number in range(8)),  # in law a is good
    *(
        row(number, "train", "math", "B", "AA", "B", "B") for number in range(8, 16)
    ),  # in mathematics b and c are
    row(16, "test", "law", "A", "AB", "C", "C"),
    row(17, "test", "math", "D", "--", "", "D"),
)


def write(folder: Path) -> Path:
    """The table of ``ROWS`` in a folder."""
    write_table(folder / "mine.csv.gz", ROWS, source="made up", licence="none needed", date="today")
    return folder / "mine.csv.gz"


def write_pool(folder: Path, *models: str) -> Path:
    """A pool file of recorded models, each named as in ``TABLE:NAME``."""
    named = (
        f'[[worker]]\nname = "{one.rpartition(":")[2]}"\nprovider = "replay_pool"\nmodel = "{one}"\n'
        for one in models
    )
    (folder / "pool.toml").write_text("".join(named))
    return folder / "pool.toml"

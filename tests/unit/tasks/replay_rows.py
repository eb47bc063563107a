"""A small replay table: three models over questions of two categories, two samples of the first."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from openconductor.providers.replay_pool import Recorded, cells_of, write_table
from openconductor.types import Usage

PRICED = Usage(input_tokens=7, output_tokens=3, dollars=Decimal("0.0000001"), seconds=0.5)


def row(
    number: int, split: str, category: str, answer: str, a: str, b: str, c: str
) -> dict[str, str]:
    """Return one question; ``a`` is two letters, a sample each, "-" for none."""
    cells = {"id": f"mine/{number}", "category": category, "split": split, "answer": answer}
    usage = Usage(output_tokens=10 + number)
    samples = [Recorded(letter.replace("-", ""), "", usage) for letter in a]
    cells |= cells_of("a", samples) | cells_of("b", [Recorded(b, "", Usage())])
    return cells | cells_of("c", [Recorded(c, "", PRICED)])


# In law a is good, in mathematics b and c are.
ROWS = (
    *(row(number, "train", "law", "A", "AA", "B", "C") for number in range(8)),
    *(row(number, "train", "math", "B", "AA", "B", "B") for number in range(8, 16)),
    row(16, "test", "law", "A", "AB", "C", "C"),
    row(17, "test", "math", "D", "--", "", "D"),
)


def write(folder: Path) -> Path:
    """Write the table of ``ROWS`` into a folder."""
    write_table(folder / "mine.csv.gz", ROWS, source="made up", licence="none needed", date="today")
    return folder / "mine.csv.gz"


def write_pool(folder: Path, *models: str) -> Path:
    """Write a pool file of recorded models, each named as in ``TABLE:NAME``."""
    text = ""
    for model in models:
        name = model.rpartition(":")[2]
        text += f'[[worker]]\nname = "{name}"\nprovider = "replay_pool"\nmodel = "{model}"\n'
    path = folder / "pool.toml"
    path.write_text(text)
    return path

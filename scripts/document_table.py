"""A table of a document, in Markdown."""

from collections.abc import Iterable


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Raises ValueError if a row has more or fewer cells than the head."""
    lines = [head, tuple("---" for _ in head), *rows]
    if any(len(line) != len(head) for line in lines):
        raise ValueError(f"a row of the table {head} has another number of cells")
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

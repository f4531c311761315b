"""lines_to_adopt: lines of a training script that change for paramd, counted between client/python/examples/
fashion_plain.py and fashion.py. Comments, empty lines and the introduction do not count.

The figure is what a script for one process needs. The note shows the lines, and counts what four workers need besides:
their share of the data.
"""
from __future__ import annotations

import difflib
import io
import tokenize


def code(path: str) -> list[str]:
    """Returns the lines of a script that have code, without comments and strings that stand alone."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = text.splitlines()
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    kept, fresh = set(), True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in ignored:
            fresh = fresh or token.type == tokenize.NEWLINE
            continue
        if not (fresh and token.type == tokenize.STRING):
            kept.update(range(token.start[0], token.end[0] + 1))
        fresh = False
    return [lines[number - 1].strip() for number in sorted(kept)]


def main() -> None:
    """Counts, and prints the figure."""
    folder = "client/python/examples/"
    plain, adopted = code(folder + "fashion_plain.py"), code(folder + "fashion.py")
    changes = [line[2:] for line in difflib.ndiff(plain, adopted) if line.startswith("+ ")]
    removed = [line for line in difflib.ndiff(plain, adopted) if line.startswith("- ")]
    assert len(removed) <= len(changes), "lines were removed"
    shares = [line for line in changes if "world_size" in line]
    alone = [line.replace('"', "'") for line in changes if line not in shares]
    print(f"{len(alone)}\t{'; '.join(alone)}; for 4 workers {len(shares)} more and a torchrun command")


if __name__ == "__main__":
    main()

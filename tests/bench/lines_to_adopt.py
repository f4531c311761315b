"""lines_to_adopt: lines of a training script that change for paramd, counted between client/python/examples/
fashion_plain.py and fashion_adamw.py: the same training, with the optimizer in the server. Both run, and come to the
same accuracy (tests/python/test_examples.py). Comments, empty lines and the introduction do not count.

The script imports its optimizer from torch.optim. One that says torch.optim.AdamW(...) needs a second line, the import.
The note shows the change, and counts what another optimizer for four workers needs besides (fashion.py).
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


def changes(before: str, after: str) -> tuple[list[str], list[str]]:
    """Returns the lines of code that only the first script has, and those that only the second has."""
    folder = "client/python/examples/"
    difference = list(difflib.ndiff(code(folder + before), code(folder + after)))
    return ([line[2:] for line in difference if line.startswith("- ")],
            [line[2:] for line in difference if line.startswith("+ ")])


def main() -> None:
    """Counts, and prints the figure."""
    removed, added = changes("fashion_plain.py", "fashion_adamw.py")
    more = changes("fashion_plain.py", "fashion.py")[1]
    print(f"{max(len(removed), len(added))}\t{'; '.join(removed)} becomes {'; '.join(added)}; "
          f"Shampoo for 4 workers: {len(more)} lines and a torchrun command")


if __name__ == "__main__":
    main()

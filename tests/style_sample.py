"""Draws comments of C files at random, and checks the form of the tree's text files."""
import argparse
import pathlib
import random
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["server", "client", "proto", "include", "tests", "deploy"]
COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.S)
LIMIT = 120


def files(folders, endings):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*") if (ROOT / folder).is_dir() else [ROOT / folder]):
            if path.suffix in endings and "traces" not in path.parts:
                yield path


def comments(text):
    """Yields (line, comment) of a C file; texts in quotes are none."""
    for match in COMMENT.finditer(text):
        if match.group().startswith("/*"):
            words = re.sub(r"\n[ \t]*\* ?", "\n", match.group()[2:-2]).strip()
            yield text.count("\n", 0, match.start()) + 1, words


def sample(count, seed, folders):
    """Prints `count` comments that have a sentence, each on one line."""
    every = []
    for path in files(folders, {".c", ".h"}):
        for line, words in comments(path.read_text()):
            if len(words.split()) >= 4 and not words.startswith("----"):
                every.append((path.relative_to(ROOT), line, words))
    random.seed(seed)
    for number, (path, line, words) in enumerate(random.sample(every, min(count, len(every))), 1):
        print(f"{number:3}. {path}:{line}\n     {' '.join(words.split())}")


def first_sentence(text):
    """Returns whether the file begins with a comment whose first paragraph holds a sentence.

    A sentence has at least three words besides the file's name. It ends with a period or a question mark, or the
    paragraph ends with a colon before formulas.
    """
    first = next(comments(text), None)
    if first is None or first[0] > 2:
        return False
    paragraph = " ".join(re.split(r"\n\s*\n", first[1])[0].split())
    match = re.match(r"(?:[\w/.-]+ - )?(.+?[.?](?=\s|$)|.+:$)", paragraph)
    return match is not None and len(match.group(1).split()) >= 3


def check(folders):
    """Prints lines that are too long and files without a first sentence. Returns how many there are."""
    found = []
    for path in tree(folders):
        text = path.read_text()
        name = path.relative_to(ROOT)
        fenced = False
        for number, line in enumerate(text.split("\n"), 1):
            fenced ^= path.suffix == ".md" and line.startswith("```")
            spared = fenced or path.suffix == ".md" and (line.lstrip().startswith("|") or "](" in line)
            if len(line) > LIMIT and not spared:
                found.append(f"{name}:{number}: {len(line)} columns, expected at most {LIMIT}")
        if path.suffix in {".c", ".h"} and not first_sentence(text):
            found.append(f"{name}:1: expected a sentence that says what the file is for")
    print("\n".join(found), end="\n" if found else "")
    print(f"{len(found)} findings")
    return len(found)


def tree(folders):
    """Yields the text files of the folders; without folders, those of the whole tree."""
    endings = {".c", ".h", ".sh", ".py", ".proto", ".md", ".txt"}
    yield from files(folders or FOLDERS, endings)
    if not folders:
        yield from sorted(path for path in ROOT.glob("*") if path.is_file() and path.suffix in endings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, prog="tests/style_sample.sh")
    parser.add_argument("count", nargs="?", help="comments to draw [100]")
    parser.add_argument("folder", nargs="*", help="folders or files to draw from, from the root [all]")
    parser.add_argument("--seed", type=int, default=None, help="draw the same comments each time")
    parser.add_argument("--check", action="store_true",
                        help="draw nothing: print lines over 120 columns and C files without a first sentence")
    given = parser.parse_args()
    if given.count is not None and not given.count.isdecimal():     # a folder without a count before it
        given.folder.insert(0, given.count)
        given.count = None
    if given.check:
        sys.exit(1 if check(given.folder) else 0)
    sample(int(given.count or 100), given.seed, given.folder or FOLDERS)


if __name__ == "__main__":
    main()

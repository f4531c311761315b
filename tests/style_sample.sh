#!/bin/bash
# Draws comments at random, to be read without the code: a stranger should understand 95 of 100 at first reading.
#   tests/style_sample.sh [--seed S] [COUNT [FOLDER...]]     100 comments of the whole tree
#   tests/style_sample.sh --check [FOLDER...]     exits 1 if a line has more than 120 columns
#                                                 or a C file does not begin with a sentence of five words
exec /usr/bin/python3 "$(dirname "$0")/style_sample.py" "$@"

#!/usr/bin/python3
"""Prints circles of files: modules (x.c with x.h) that include or call each other in a ring.

Usage: circles.py ROOT FOLDER... [--layer FOLDER]...

A folder after --layer counts as one module: its files may call each other back.
An edge a -> b: a file of module a includes b's header, or calls a pd_ function that b.c defines.
Prints one line a circle, and the calls that close it; exits 1 if there is one.
"""
import collections
import os
import re
import sys

INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
DEFINED = re.compile(r'^(?!static)[a-zA-Z_][\w \*]*?\b(pd_\w+)\(', re.M)
WORD = re.compile(r'\b(pd_\w+)\b')
NOT_CODE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"(?<!\.h")', re.S)


def read(root, folders):
    """Maps each C file below the folders to its text without comments and strings."""
    texts = {}
    for folder in folders:
        for path, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                if name.endswith(('.c', '.h')):
                    with open(os.path.join(path, name), encoding='utf-8') as file:
                        texts[os.path.join(path, name)] = NOT_CODE.sub(' ', file.read())
    return texts


LAYERS = []


def module(path):
    """Returns the path without its ending, or the layer that it lies in."""
    return next((layer for layer in LAYERS if path.startswith(layer + os.sep)), os.path.splitext(path)[0])


def edges(texts):
    """Maps (a, b) to what ties module a to module b."""
    headers = collections.defaultdict(list)
    home = {}
    for path, text in texts.items():
        if path.endswith('.h'):
            headers[os.path.basename(path)].append(path)
        else:
            for name in DEFINED.findall(text):
                home.setdefault(name, module(path))
    ties = collections.defaultdict(set)
    for path, text in texts.items():
        for name in INCLUDE.findall(text):
            found = headers[os.path.basename(name)]
            near = [h for h in found if os.path.dirname(h) == os.path.dirname(path)]
            for header in near or (found if len(found) == 1 else []):
                ties[module(path), module(header)].add('#include')
        if path.endswith('.c'):
            for name in set(WORD.findall(text)) & home.keys():
                ties[module(path), home[name]].add(name)
    return {pair: why for pair, why in ties.items() if pair[0] != pair[1]}


def circles(ties):
    """Returns the strongly connected sets of more than one module (Tarjan 1972)."""
    graph = collections.defaultdict(list)
    for a, b in ties:
        graph[a].append(b)
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for node in list(graph):
        if node not in number:
            visit(node)
    return found


def main():
    sys.setrecursionlimit(10000)
    root, folders = sys.argv[1], sys.argv[2:]
    while '--layer' in folders:
        at = folders.index('--layer')
        LAYERS.append(os.path.join(root, folders[at + 1]))
        del folders[at:at + 2]
    ties = edges(read(root, folders))
    found = circles(ties)
    for circle in found:
        print('circle of files:', ', '.join(sorted(os.path.relpath(m, root) for m in circle)))
        for (a, b), why in sorted(ties.items()):
            if a in circle and b in circle:
                print(f'  {os.path.relpath(a, root)} -> {os.path.relpath(b, root)}: {" ".join(sorted(why))}')
    print(f'{len(found)} circles of files')
    return 1 if found else 0


sys.exit(main())

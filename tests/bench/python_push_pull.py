"""Measures push_pull of 100 MiB from NumPy over the speed of the C library: prints "VALUE<tab>NOTE".

Two clients of one daemon, over a Unix socket, take turns: one calls paramd.Client, the other the library's functions on
structs that were filled in before. Both push and pull 25 tensors of 4 MiB, SGD on the server. The value is the median
of the ratios of neighbouring rounds.
"""
from __future__ import annotations

import ctypes
import os
import sys
from functools import partial

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))

import numpy as np
import turns

import paramd
from conftest import Daemon
from paramd import _structs as structs
from paramd._library import library

TENSORS, ELEMENTS, ROUNDS, WARM = 25, 1 << 20, 40, 5


def opened(url, job):
    weights = {f"t{i}": np.zeros(ELEMENTS, np.float32) for i in range(TENSORS)}
    gradients = {name: np.ones(ELEMENTS, np.float32) for name in weights}
    client = paramd.Client(url, job, rules="* sgd lr=0.001")
    client.declare(weights)
    client.init(weights)
    return client, weights, gradients


def with_package(url):
    client, weights, gradients = opened(url, "package")
    return lambda: client.push_pull(gradients, weights).wait()


def with_library(url):
    """The same round by the C functions alone."""
    client, weights, gradients = opened(url, "library")
    items = (structs.Item * TENSORS)()
    for i, (name, item) in enumerate(zip(weights, items)):
        item.param, item.gradient, item.weights = i, gradients[name].ctypes.data, weights[name].ctypes.data
    ticket, error, handle = ctypes.c_uint64(), structs.Error(), client.handle._pointer

    def push_pull(kept=(client, weights, gradients)):
        library().pd_client_push_pull_sized(handle, items, TENSORS, None, ctypes.sizeof(structs.PushOptions),
                                            ctypes.byref(ticket), ctypes.byref(error))
        assert library().pd_client_wait(handle, ticket, 60.0, ctypes.byref(error)) == 0, error.text

    return push_pull


def main():
    daemon = Daemon()
    try:
        sides = [partial(turns.seconds, make(daemon.url)) for make in (with_library, with_package)]
        rows = turns.take(sides, WARM + ROUNDS)[WARM:]
    finally:
        daemon.end()
    c, python = turns.medians(rows)
    gigabytes = 2 * TENSORS * ELEMENTS * 4 / 1e9
    ratio = turns.ratio(rows, 0, 1)
    print(f"{ratio.median:.3f}\t{ratio}; {gigabytes / python:.2f} GB/s of payload, the C library {gigabytes / c:.2f}; "
          f"rounds of {1e3 * python:.1f} and {1e3 * c:.1f} ms")


main()

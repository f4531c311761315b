#!/usr/bin/python3
"""Measures how many times faster a step of `shampoo` is than a step of Meta's Distributed Shampoo on PyTorch 2.

Usage: meta_side_by_side.py BLOCK PROGRAM

BLOCK is the side of a block (max_preconditioner_dim), PROGRAM is figure_amortised_step, which measures our steps. The
parameter is a matrix of 4096 x 1024, and roots are computed every 10 steps. Both sides use all cores of this process.
Prints the ratio, a tab and a note. Exits 77 without PyTorch 2.

meta_shampoo.py stands in for Meta's program. It leaves out what costs that program time but is no arithmetic, so the
ratio is a lower bound.
"""
import os
import subprocess
import sys
import time

import meta_shampoo
import turns
from meta_shampoo import BETA1, BETA2, EPSILON, LR, WEIGHT_DECAY, torch

ROWS, COLUMNS = 4096, 1024
FREQUENCY = 10
PAIRS = 5
CYCLES = 2                      # cycles of FREQUENCY steps that are measured in each half of a pair


class Upstream:
    """Steps of Meta's optimizer on random gradients."""

    def __init__(self, side):
        torch.manual_seed(1)
        self.gradients = [torch.randn(ROWS, COLUMNS) * 1e-2 for _ in range(FREQUENCY)]
        self.optimizer = meta_shampoo.Shampoo([torch.randn(ROWS, COLUMNS)], side, FREQUENCY)
        self.run(FREQUENCY)

    def run(self, steps):
        """Takes steps and returns the milliseconds that each took on average."""
        begin = time.monotonic()
        for i in range(steps):
            self.optimizer.step([self.gradients[i % FREQUENCY]])
        return (time.monotonic() - begin) * 1e3 / steps


def ours(program, side, threads):
    """Returns the milliseconds of one of our steps on average."""
    command = [program, str(threads), str(FREQUENCY), str(CYCLES), 'shampoo', f'{ROWS}x{COLUMNS}',
               f'max_preconditioner_dim={side}', f'precondition_frequency={FREQUENCY}', f'lr={LR}',
               f'betas={BETA1},{BETA2}', f'epsilon={EPSILON}', f'weight_decay={WEIGHT_DECAY}', 'grafting_config=Adam']
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0])


def main():
    side, program = int(sys.argv[1]), sys.argv[2]
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    upstream = Upstream(side)
    rows = turns.take([lambda: upstream.run(CYCLES * FREQUENCY), lambda: ours(program, side, threads)], PAIRS)
    ratio, (theirs, own) = turns.ratio(rows, 0, 1), turns.medians(rows)
    print(f'{ratio.median:.2f}\t{ratio}; blocks of {side}: ours {own:.1f} ms a step, Meta\'s '
          f'operations {theirs:.1f} ms on PyTorch {torch.__version__} '
          f'(a stand-in for Meta\'s program), {threads} threads, roots every {FREQUENCY} steps')


if __name__ == '__main__':
    main()

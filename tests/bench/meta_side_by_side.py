#!/usr/bin/python3
"""Measures how many times faster a step of `shampoo` is than a step of Meta's Distributed Shampoo on PyTorch 2.

Usage: meta_side_by_side.py BLOCK PROGRAM

BLOCK is the side of a block (max_preconditioner_dim), PROGRAM is figure_amortised_step, which measures our steps. The
parameter is a matrix of 4096 x 1024, and roots are computed every 10 steps. Both sides use all cores of this process.
Prints the ratio, a tab and a note. Exits 77 without PyTorch 2.

Meta's optimizer is in no package index, so the class Shampoo stands in for it. It makes the calls of PyTorch that
Meta's program (July 2024, without compiling) makes for one parameter in one process, in the same order: one
tensordot for each factor, one eigh for each root, foreach calls for everything else. It leaves out what costs Meta's
program time but is no arithmetic: profiling scopes, quantized tensors, the bookkeeping of absent gradients. So the
ratio is a lower bound.
"""
import os
import statistics
import subprocess
import sys
import time

ROWS, COLUMNS = 4096, 1024
FREQUENCY = 10
PAIRS = 3
CYCLES = 2                      # cycles of FREQUENCY steps that are measured in each half of a pair
LR, BETA1, BETA2, EPSILON, WEIGHT_DECAY, ROOT = 0.01, 0.9, 0.999, 1e-12, 1e-5, 4
GRAFTING_BETA2, GRAFTING_EPSILON = 0.999, 1e-8


def load_torch():
    """Returns PyTorch 2, or ends the program."""
    try:
        import torch
        if int(torch.__version__.split('.')[0]) >= 2:
            return torch
        found = f'PyTorch {torch.__version__}'
    except ImportError:
        found = 'no PyTorch'
    print(f'expected PyTorch 2, {sys.executable} has {found}; PYTHON=FILE chooses another Python', file=sys.stderr)
    sys.exit(77)


torch = load_torch()


def blocks_of(tensor, side):
    """Returns views of the tensor's blocks, row by row."""
    return tuple(block for rows in torch.split(tensor, side, 0) for block in torch.split(rows, side, 1))


class Shampoo:
    """Meta's Distributed Shampoo of one matrix, with Adam's graft and decoupled weight decay."""

    def __init__(self, weights, side):
        self.weights, self.side = weights, side
        self.blocks = blocks_of(weights, side)
        self.factors = tuple(tuple(torch.zeros(n, n) for n in block.shape) for block in self.blocks)
        self.inverses = tuple(tuple(torch.zeros(n, n) for n in block.shape) for block in self.blocks)
        self.is_diagonal = tuple(tuple(torch.tensor(True) for _ in block.shape) for block in self.blocks)
        self.second = tuple(torch.zeros_like(block, memory_format=torch.contiguous_format) for block in self.blocks)
        self.filtered = tuple(torch.zeros_like(block, memory_format=torch.contiguous_format) for block in self.blocks)
        self.step_count = torch.tensor(0, dtype=torch.int64)

    def update_factors(self, gradients):
        for gradient, factors in zip(gradients, self.factors):
            torch._foreach_mul_(factors, BETA2)
            products = tuple(torch.tensordot(gradient, gradient, dims=[[1 - k]] * 2) for k in range(2))
            torch._foreach_add_(factors, products, alpha=1 - BETA2)

    def update_graft(self, gradients):
        torch._foreach_mul_(self.second, GRAFTING_BETA2)
        torch._foreach_addcmul_(self.second, gradients, gradients, value=1 - GRAFTING_BETA2)

    @staticmethod
    def inverse_root(matrix, is_diagonal):
        """Returns (matrix + EPSILON I)^(-1/ROOT), after the eigenvalues were raised to be at least 0."""
        if is_diagonal:
            return torch.diag((torch.diagonal(matrix) + EPSILON).pow(-1 / ROOT))
        values, vectors = torch.linalg.eigh(matrix)
        values += -torch.minimum(torch.min(values), torch.tensor(0.0))
        values += EPSILON
        return vectors * values.pow(-1 / ROOT).unsqueeze(0) @ vectors.T

    def update_roots(self):
        correction = torch.tensor(1.0) - BETA2**self.step_count
        for factors, inverses, flags in zip(self.factors, self.inverses, self.is_diagonal):
            for factor, inverse, is_diagonal in zip(factors, inverses, flags):
                if is_diagonal and (factor.triu(diagonal=1).any() or factor.tril(diagonal=-1).any()):
                    is_diagonal.copy_(torch.tensor(False))
                corrected = factor / correction
                if torch.isnan(corrected).any() or torch.isinf(corrected).any():
                    raise ValueError('a factor is not finite')
                root = self.inverse_root(corrected, is_diagonal).to(dtype=inverse.dtype)
                if torch.isnan(root).any() or torch.isinf(root).any():
                    raise ValueError('a root is not finite')
                inverse.copy_(root)

    def filter(self, gradients):
        torch._foreach_mul_(self.filtered, BETA1)
        torch._foreach_add_(self.filtered, gradients, alpha=1 - BETA1)
        return torch._foreach_div(self.filtered, torch.tensor(1.0) - BETA1**self.step_count)

    def graft(self, direction):
        scale = torch._foreach_div(self.second, torch.tensor(1.0) - GRAFTING_BETA2**self.step_count)
        torch._foreach_sqrt_(scale)
        torch._foreach_add_(scale, GRAFTING_EPSILON)
        return torch._foreach_div(direction, scale)

    def precondition(self, direction):
        def along_both(block, inverses):
            for inverse in inverses:
                block = torch.tensordot(block, inverse, [[0], [0]])
            return block

        search = tuple(along_both(block, inverses) for block, inverses in zip(direction, self.inverses))
        lengths = torch._foreach_norm(self.graft(direction))
        own = torch._foreach_norm(search)
        torch._foreach_add_(own, 1e-16)
        torch._foreach_div_(lengths, own)
        torch._foreach_mul_(search, lengths)
        return search

    @torch.no_grad()
    def step(self, gradient):
        gradients = blocks_of(gradient, self.side)
        self.step_count += 1
        count = int(self.step_count)
        self.update_factors(gradients)
        self.update_graft(gradients)
        if count % FREQUENCY == 0:
            self.update_roots()
        direction = self.filter(gradients)
        search = self.precondition(direction) if count >= FREQUENCY else self.graft(direction)
        torch._foreach_add_(search, self.blocks, alpha=WEIGHT_DECAY)
        torch._foreach_mul_(search, -LR)
        torch._foreach_add_(self.blocks, search)


class Upstream:
    """Steps of Meta's optimizer on random gradients."""

    def __init__(self, side):
        torch.manual_seed(1)
        self.gradients = [torch.randn(ROWS, COLUMNS) * 1e-2 for _ in range(FREQUENCY)]
        self.optimizer = Shampoo(torch.randn(ROWS, COLUMNS), side)
        self.run(FREQUENCY)

    def run(self, steps):
        """Takes steps and returns the milliseconds that each took on average."""
        begin = time.monotonic()
        for i in range(steps):
            self.optimizer.step(self.gradients[i % FREQUENCY])
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
    pairs = [(upstream.run(CYCLES * FREQUENCY), ours(program, side, threads)) for _ in range(PAIRS)]
    ratio = statistics.median(theirs / own for theirs, own in pairs)
    print(f'{ratio:.2f}\tblocks of {side}: ours {statistics.median(own for _, own in pairs):.1f} ms a step, Meta\'s '
          f'operations {statistics.median(theirs for theirs, _ in pairs):.1f} ms on PyTorch {torch.__version__} '
          f'(a stand-in for Meta\'s program), {threads} threads, roots every {FREQUENCY} steps')


if __name__ == '__main__':
    main()

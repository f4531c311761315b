"""Meta's Distributed Shampoo on PyTorch 2, for figures. A program that imports it ends with 77 without PyTorch 2.

Meta's optimizer is in no package index, so the class Shampoo stands in for it. It makes the calls of PyTorch that
Meta's program (July 2024, without compiling) makes in one process, in the same order: one tensordot for each factor,
one eigh for each root, foreach calls for everything else. It leaves out what costs Meta's program time but is no
arithmetic: profiling scopes, quantized tensors, the bookkeeping of absent gradients.
"""
import sys

LR, BETA1, BETA2, EPSILON, WEIGHT_DECAY = 0.01, 0.9, 0.999, 1e-12, 1e-5
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


def merged(shape, side):
    """Returns the sizes of a tensor after neighbours were multiplied while their product is at most `side`."""
    sizes = [size for size in shape if size > 1] or [1]
    result = sizes[:1]
    for size in sizes[1:]:
        if result[-1] * size <= side:
            result[-1] *= size
        else:
            result.append(size)
    return result


def blocks_of(tensor, side):
    """Returns views of the tensor's blocks, row by row."""
    blocks = [tensor.view(merged(tensor.shape, side))]
    for dim in range(blocks[0].dim()):
        blocks = [piece for block in blocks for piece in torch.split(block, side, dim)]
    return blocks


def all_blocks(tensors, side):
    return [block for tensor in tensors for block in blocks_of(tensor, side)]


class Shampoo:
    """Meta's Distributed Shampoo of some parameters, with Adam's graft and decoupled weight decay.

    side: the largest side of a block. frequency: roots are computed every so many steps.
    """

    def __init__(self, params, side, frequency, lr=LR):
        self.side, self.frequency, self.lr = side, frequency, lr
        self.blocks = all_blocks([param.detach() for param in params], side)
        self.factors = self.squares()
        self.inverses = self.squares()
        self.is_diagonal = [[torch.tensor(True) for _ in block.shape] for block in self.blocks]
        self.second = [torch.zeros_like(block, memory_format=torch.contiguous_format) for block in self.blocks]
        self.filtered = [torch.zeros_like(block, memory_format=torch.contiguous_format) for block in self.blocks]
        self.count = 0

    def squares(self):
        """Returns a square matrix of zeros for each side of each block."""
        return [[block.new_zeros(n, n) for n in block.shape] for block in self.blocks]

    def update_factors(self, gradients):
        for gradient, factors in zip(gradients, self.factors):
            torch._foreach_mul_(factors, BETA2)
            others = [[d for d in range(gradient.dim()) if d != k] for k in range(gradient.dim())]
            products = [torch.tensordot(gradient, gradient, dims=[dims] * 2) for dims in others]
            torch._foreach_add_(factors, products, alpha=1 - BETA2)

    def update_graft(self, gradients):
        torch._foreach_mul_(self.second, GRAFTING_BETA2)
        torch._foreach_addcmul_(self.second, gradients, gradients, value=1 - GRAFTING_BETA2)

    @staticmethod
    def inverse_root(matrix, root, is_diagonal):
        """Returns (matrix + EPSILON I)^(-1/root), after the eigenvalues were raised to be at least 0."""
        if is_diagonal:
            return torch.diag((torch.diagonal(matrix) + EPSILON).pow(-1 / root))
        values, vectors = torch.linalg.eigh(matrix)
        values += -torch.clamp(torch.min(values), max=0.0)
        values += EPSILON
        return vectors * values.pow(-1 / root).unsqueeze(0) @ vectors.T

    def update_roots(self):
        correction = 1 - BETA2**self.count
        for factors, inverses, flags in zip(self.factors, self.inverses, self.is_diagonal):
            for factor, inverse, is_diagonal in zip(factors, inverses, flags):
                if is_diagonal and (factor.triu(diagonal=1).any() or factor.tril(diagonal=-1).any()):
                    is_diagonal.copy_(torch.tensor(False))
                corrected = factor / correction
                if torch.isnan(corrected).any() or torch.isinf(corrected).any():
                    raise ValueError('a factor is not finite')
                root = self.inverse_root(corrected, 2 * len(factors), is_diagonal).to(dtype=inverse.dtype)
                if torch.isnan(root).any() or torch.isinf(root).any():
                    raise ValueError('a root is not finite')
                inverse.copy_(root)

    def filter(self, gradients):
        torch._foreach_mul_(self.filtered, BETA1)
        torch._foreach_add_(self.filtered, gradients, alpha=1 - BETA1)
        return torch._foreach_div(self.filtered, 1 - BETA1**self.count)

    def graft(self, direction):
        scale = torch._foreach_div(self.second, 1 - GRAFTING_BETA2**self.count)
        torch._foreach_sqrt_(scale)
        torch._foreach_add_(scale, GRAFTING_EPSILON)
        return torch._foreach_div(direction, scale)

    def precondition(self, direction):
        def along_all(block, inverses):
            for inverse in inverses:
                block = torch.tensordot(block, inverse, [[0], [0]])
            return block

        search = [along_all(block, inverses) for block, inverses in zip(direction, self.inverses)]
        lengths = torch._foreach_norm(self.graft(direction))
        own = torch._foreach_norm(search)
        torch._foreach_add_(own, 1e-16)
        torch._foreach_div_(lengths, own)
        torch._foreach_mul_(search, lengths)
        return search

    @torch.no_grad()
    def step(self, gradients):
        """Takes a step with one gradient for each parameter."""
        gradients = all_blocks(gradients, self.side)
        self.count += 1
        self.update_factors(gradients)
        self.update_graft(gradients)
        if self.count % self.frequency == 0:
            self.update_roots()
        direction = self.filter(gradients)
        search = self.precondition(direction) if self.count >= self.frequency else self.graft(direction)
        torch._foreach_add_(search, self.blocks, alpha=WEIGHT_DECAY)
        torch._foreach_mul_(search, -self.lr)
        torch._foreach_add_(self.blocks, search)

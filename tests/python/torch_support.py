"""What the tests of paramd.torch share: small models, ranks as threads, comparisons."""
from __future__ import annotations

import threading
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import paramd.torch  # noqa: E402
from paramd import exits  # noqa: E402

ULP = 2.0 ** -24
TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])

torch.set_num_threads(1)


def needs_torch(major: int, minor: int) -> Any:
    """Skips a test where PyTorch is older."""
    return pytest.mark.skipif((major, minor) > TORCH, reason=f"needs torch {major}.{minor}: {torch.__version__}")


def first_order(cases: Any) -> list[Any]:
    """Parametrizes a test by optimizers. torch 1.13 counts NAdam's mu_product twice."""
    return [pytest.param(name, marks=[needs_torch(2, 0)] if name == "nadam" else []) for name in cases]


class Transformer(torch.nn.Module):
    """A character model of one layer, with a tied embedding: about 4,000 weights."""

    def __init__(self, words: int = 20, width: int = 16) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Any) -> Any:
        mask = torch.full((tokens.shape[1], tokens.shape[1]), float("-inf")).triu(1)
        return self.head(self.norm(self.layer(self.embed(tokens), src_mask=mask)))


_making = threading.Lock()              # models are made of torch's one stream of random numbers


def transformer(seed: int = 0) -> Transformer:
    with _making:
        torch.manual_seed(seed)
        return Transformer()


def mlp(seed: int = 0, wide: int = 7) -> Any:
    with _making:
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(5, wide), torch.nn.Tanh(), torch.nn.LayerNorm(wide),
                                   torch.nn.Linear(wide, 2))


def tokens(step: int, batch: int = 4, length: int = 9) -> Any:
    return torch.randint(0, 20, (batch, length), generator=torch.Generator().manual_seed(1000 + step))


def rows(step: int, n: int = 8) -> Any:
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(2000 + step))


def token_loss(model: Any, data: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())


def row_loss(model: Any, data: Any) -> Any:
    return (model(data) - data[:, :2].sin()).pow(2).mean()


def weights(model: Any) -> list[Any]:
    return [param.detach().clone() for param in model.parameters()]


def same_bits(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b))


def farthest(a: Any, b: Any) -> float:
    """The largest difference of two lists of tensors."""
    return max(float((x - y).abs().max()) for x, y in zip(a, b))


def ranks(n: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs work(rank) in a thread for each rank. Returns the results; raises the first error at once, since the other
    ranks then wait for the one that failed."""
    results: list[Any] = [None] * n
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not errors:
        for thread in threads:
            thread.join(0.02)
    close_all()
    if errors:
        raise errors[0]
    return results


def close_all() -> None:
    """Closes all connections, as if their processes had ended."""
    for client in list(exits._open):
        exits._open.discard(client)
        client.close()


def optimizer(params: Any, daemon: Any, job: str, row: str = "sgd", /, **options: Any) -> Any:
    return paramd.torch.Optimizer(params, row, daemon.url, job=job, **options)

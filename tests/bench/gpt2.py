"""gpt2_tokens: tokens per second of GPT-2 small (124 million parameters) on a CUDA device with paramd's `shampoo` and
delay=1, over those with AdamW on the device. Usage: gpt2.py

A step has 0.5 million tokens: 16 micro-batches of 32 sequences of 1,024 tokens, in bfloat16, with weights in float32.
The note has the speed and the peak of the device's memory with
- AdamW: torch's own, fused, on the device;
- Meta's Shampoo on the device, for which meta_shampoo.py stands in;
- `shampoo` of a daemon on this host's cores, with delay=0 and delay=1.
Both Shampoos have blocks of 1,024 and compute roots every 10 steps. A speed is that of the median step, in brackets
that of 10 steps together, of which one computes roots; with paramd they are computed beside the steps. Tokens are drawn
from Zipf's law, and the loss after these steps shows that all of them train.
"""
from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable

import meta_shampoo  # first: without PyTorch the program ends here
from meta_shampoo import BETA1, BETA2, WEIGHT_DECAY, torch

sys.path.insert(0, "tests/python")
MICROS, SEQUENCES, LENGTH = 16, 32, 1024
WARM_UP, STEPS, FREQUENCY, SIDE, LR = 2, 10, 10, 1024, 6e-4
Step = Callable[[], object]


def need(holds: bool, what: str) -> None:
    """Ends the program, as one that cannot measure here, unless `holds`."""
    if not holds:
        print(f"expected {what}", file=sys.stderr)
        sys.exit(77)


class Data:
    """Batches of tokens on the device, drawn by Zipf's law."""

    def __init__(self, words: int) -> None:
        self.odds = 1 / torch.arange(1, words + 1, device="cuda", dtype=torch.float32)
        self.generator = torch.Generator("cuda").manual_seed(0)

    def batch(self) -> torch.Tensor:
        """Returns SEQUENCES x LENGTH tokens."""
        drawn = torch.multinomial(self.odds, SEQUENCES * LENGTH, replacement=True, generator=self.generator)
        return drawn.reshape(SEQUENCES, LENGTH)


def adamw(model: torch.nn.Module) -> Step:
    """Returns what takes a step with AdamW on the device."""
    return torch.optim.AdamW(model.parameters(), LR, (BETA1, BETA2), weight_decay=WEIGHT_DECAY, fused=True).step


def meta(model: torch.nn.Module) -> Step:
    """Returns what takes a step with Meta's Shampoo on the device."""
    params = list(model.parameters())
    shampoo = meta_shampoo.Shampoo(params, SIDE, FREQUENCY, LR)
    return lambda: shampoo.step([param.grad for param in params])


def paramd_of(url: str, delay: int) -> Callable[[torch.nn.Module], Step]:
    """Returns what makes the step of paramd's shampoo for a model."""
    import paramd.torch

    def make(model: torch.nn.Module) -> Step:
        return paramd.torch.Optimizer(model, "shampoo", url, job=f"gpt2-{delay}", delay=delay, lr=LR,
                                      betas=(BETA1, BETA2), weight_decay=WEIGHT_DECAY, grafting_config="Adam",
                                      max_preconditioner_dim=SIDE, precondition_frequency=FREQUENCY).step
    return make


def train_step(model: torch.nn.Module, data: Data, step: Step) -> tuple[float, float]:
    """Takes a step. Returns its seconds and the loss of its last micro-batch."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(MICROS):
        tokens = data.batch()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        (loss / MICROS).backward()
    step()
    model.zero_grad()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, float(loss)


def measure(name: str, model: torch.nn.Module, words: int,
            make: Callable[[torch.nn.Module], Step]) -> tuple[float, str]:
    """Trains a model. Returns the seconds of the median step, and what the note says; prints that to stderr, too."""
    data, step = Data(words), make(model)
    torch.cuda.reset_peak_memory_stats()
    taken = [train_step(model, data, step) for _ in range(WARM_UP + STEPS)][WARM_UP:]
    seconds, loss = [pair[0] for pair in taken], taken[-1][1]
    tokens = MICROS * SEQUENCES * LENGTH
    text = (f"{name} {tokens / statistics.median(seconds):,.0f} tokens/s ({STEPS * tokens / sum(seconds):,.0f}), "
            f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, loss {loss:.2f}")
    print(text, [round(each, 2) for each in seconds], file=sys.stderr)
    return statistics.median(seconds), text


def main() -> None:
    """Measures, and prints the figure."""
    need(torch.cuda.is_available(), "a CUDA device")
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as error:
        need(False, f"transformers ({error})")
    from conftest import Daemon

    def made() -> torch.nn.Module:
        torch.manual_seed(0)
        config = GPT2Config(use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        return GPT2LMHeadModel(config).to("cuda")

    words, daemon = GPT2Config().vocab_size, Daemon()
    kinds = {"AdamW": adamw, "Meta's Shampoo": meta, "paramd": paramd_of(daemon.url, 0),
             "paramd with delay=1": paramd_of(daemon.url, 1)}
    found = {}
    for name, make in kinds.items():
        found[name] = measure(name, made(), words, make)
        gc.collect()
        torch.cuda.empty_cache()
    daemon.end()
    ratio = found["AdamW"][0] / found["paramd with delay=1"][0]
    print(f"{ratio:.3f}\t{'; '.join(text for _, text in found.values())}; {torch.cuda.get_device_name()}, "
          f"{len(os.sched_getaffinity(0))} cores, torch {torch.__version__}")


if __name__ == "__main__":
    main()

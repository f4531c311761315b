"""lm_steps, lm_time: what it takes other optimizers to reach AdamW's final loss on the character-level Transformer of
client/python/examples/char_lm.py. Usage: lm_to_loss.py [--minutes N] [--steps N] [--batch N] [--width N] [--layers N]
[--seeds N] [--rates-only] steps|time [OPTIMIZER...]

AdamW (torch's own) trains for STEPS steps of BATCH sequences with each of LRS, then with each of BETAS, then with each
of LRS again, then with each of DECAYS, on the first of three seeds. The goal is the median of the final validation
losses of three seeds with the best of these settings. Each other optimizer trains through paramd, with the settings in
the example or in MORE, and with the best of its RATES on the first seed. The figure looks for the smallest of
SHARES of STEPS after which the median of its final losses reaches the goal. It halves the list until one share is left,
since more steps give lower losses. Every training has the example's schedule, which ends at zero in its last step: so
each number of steps is used as well as it can be. The figure is that share (steps), or the ratio of the median
durations (time), of the first optimizer; the note has all of them.

Trainings are appended to $LOG (build/lm.jsonl, anew), and those that are in a LOG that was given are not repeated.
After --minutes no more trainings begin, and the figure is skipped; started again with the same LOG, it goes on from
there. --steps, --batch: in place of STEPS and BATCH. --width, --layers: another size of model, whose rates are those
above, in inverse proportion to the width. --seeds: the first N alone. --rates-only: AdamW has the example's betas and
decay, and the best of its rates.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    import torch
except ImportError:
    print(f"expected PyTorch in {sys.executable}; PYTHON=FILE chooses another Python", file=sys.stderr)
    sys.exit(77)
sys.path.insert(0, "client/python/examples")
import char_lm

import paramd
import paramd.torch

LRS = (0.016, 0.032, 0.064)
BETAS = ((0.9, 0.999), (0.9, 0.99), (0.9, 0.95), (0.8, 0.99), (0.7, 0.99), (0.6, 0.99))
DECAYS = (0.01, 0.1, 0.3)
STEPS, BATCH, SEEDS = 400, 64, (0, 1, 2)
WIDTH, LAYERS = 64, 2       # of the example's model, to which all rates belong
SHARES = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0, 1.1, 1.25)
Record = dict[str, Any]
example_optimizer = char_lm.make_optimizer


def muon(steps: int) -> Record:
    """Returns muon's settings: all that is no matrix of a layer follows AdamW's schedule."""
    return {"weight_decay": 0.1, "adam_weight_decay": 0.01, "adam_betas": (0.7, 0.99),
            "adam_lr": f"warmup_linear(peak=0.032,warmup_steps={max(1, steps // 20)},steps={steps})"}


# The rates of which an optimizer gets the best one; others have the example's.
RATES: dict[str, tuple[float, ...]] = {
    "soap": (0.008, 0.016, 0.032, 0.064),
    "kl_shampoo": (0.008, 0.016, 0.032, 0.064),
    "ademamix": (0.008, 0.016, 0.032),
    "mars": (0.016, 0.032, 0.064),
    "muon": (0.02, 0.04, 0.08),
    "soap+hyperball": (0.016, 0.032, 0.064, 0.128),     # an angle, of hidden matrices
}
# Settings of optimizers that the example has not, for a number of steps. NAME+OPTION is the optimizer NAME with an
# option.
MORE: dict[str, Callable[[int], Record]] = {
    "kl_shampoo": lambda _: {"betas": (0.8, 0.95), "shampoo_beta": 0.9, "precondition_frequency": 5,
                             "weight_decay": 0.1},
    "ademamix": lambda steps: {"betas": (0.7, 0.99, 0.999), "alpha": 4.0, "alpha_warmup": steps,
                               "beta3_warmup": steps, "weight_decay": 0.01},
    "mars": lambda _: {"betas": (0.8, 0.95), "weight_decay": 0.01, "lr_1d": 0.032, "weight_decay_1d": 0.01},
    "muon": muon,
    # All but hidden matrices have soap's own best rate.
    "soap+hyperball": lambda _: {"betas": (0.8, 0.95), "precondition_frequency": 5, "weight_decay": 0,
                                 "hyperball": True, "others": {"lr": 0.032, "weight_decay": 0.1}},
}


def make_optimizer(model: torch.nn.Module, name: str, hypers: Record) -> torch.optim.Optimizer:
    """Returns what the example's function returns. `others` in hypers: options that hyperball's guide gives to all but
    the hidden matrices."""
    if "others" not in hypers:
        return example_optimizer(model, name, hypers)
    hidden = [p for n, p in model.named_parameters() if n.startswith("layers.") and p.dim() == 2]
    others = [p for p in model.parameters() if all(p is not h for h in hidden)]
    own = {key: value for key, value in hypers.items() if key != "others"}
    groups = [{"params": hidden}, {"params": others, "hyperball": False, **hypers["others"]}]
    return paramd.torch.Optimizer(groups, name, model=model, **own)


class OutOfTime(Exception):
    """The minutes that were given are over."""


def settings_of(optimizer: str, steps: int, **changes: Any) -> Record:
    """Returns the settings of an optimizer for a number of steps: the example's or those in MORE, with changes."""
    own = MORE[optimizer](steps) if optimizer in MORE else char_lm.SETTINGS[optimizer]
    return {**own, **changes}


class Trainings:
    """The trainings that were done: the last record of each."""

    def __init__(self, path: str, url: str, options: argparse.Namespace) -> None:
        self.path, self.url, self.options = path, url, options
        self.seeds = SEEDS[:options.seeds]
        self.end_at = time.monotonic() + 60 * options.minutes
        self.ends: dict[tuple[Any, ...], Record] = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for record in map(json.loads, file):
                    self.ends[self.key(record)] = record

    @staticmethod
    def key(record: Record) -> tuple[Any, ...]:
        """Returns what tells a training from others."""
        settings = json.dumps(json.loads(record["settings"]), sort_keys=True)
        return (settings, *(record.get(name) for name in ("optimizer", "batch", "width", "layers", "seed", "steps")))

    def rates(self, rates: tuple[float, ...]) -> tuple[float, ...]:
        """Returns rates of the example's model for this one's width."""
        return tuple(rate * WIDTH / self.options.width for rate in rates)

    def end(self, optimizer: str, steps: int, seed: int, **changes: Any) -> Record:
        """Returns the last record of a training, which is done unless it is in the log. changes: other settings.
        OutOfTime: no more trainings begin."""
        settings = settings_of(optimizer, steps, **changes)
        optimizer = optimizer.split("+")[0]
        about = {"optimizer": optimizer, "batch": self.options.batch, "width": self.options.width,
                 "layers": self.options.layers, "seed": seed, "steps": steps}
        key = self.key({**about, "settings": json.dumps(settings)})
        if key not in self.ends:
            if time.monotonic() > self.end_at:
                raise OutOfTime
            os.environ.update(PARAMD_URL=self.url, PARAMD_JOB=f"{optimizer}-{steps}-{seed}-{len(self.ends)}")
            args = argparse.Namespace(every=50, **about)
            char_lm.SETTINGS.setdefault(optimizer, {})      # the example trains what is in its table
            char_lm.make_optimizer = make_optimizer
            curve = char_lm.train(args, **settings)
            with open(self.path, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(point) + "\n" for point in curve)
            self.ends[key] = curve[-1]
        return self.ends[key]

    def median(self, optimizer: str, steps: int, **changes: Any) -> tuple[float, float]:
        """Returns the medians over the seeds of the final validation loss, and of the duration in seconds."""
        ends = [self.end(optimizer, steps, seed, **changes) for seed in self.seeds]
        return (statistics.median(end["validation"] for end in ends), statistics.median(end["seconds"] for end in ends))


def tune(trainings: Trainings, steps: int) -> Record:
    """Returns the best settings of AdamW on the first seed: the learning rate with torch's betas and weight decay, then
    the betas at that rate, then the rate with those betas, then the decay with both."""
    lrs = trainings.rates(LRS)
    best: Record = {"lr": lrs[0], "betas": BETAS[0], "weight_decay": DECAYS[0]}
    choices: tuple[tuple[str, tuple[Any, ...]], ...] = (("lr", lrs), ("betas", BETAS), ("lr", lrs),
                                                        ("weight_decay", DECAYS))
    if trainings.options.rates_only:
        best, choices = {**char_lm.SETTINGS["adamw"], "lr": lrs[0]}, choices[:1]

    def loss(name: str, value: Any) -> float:
        return float(trainings.end("adamw", steps, SEEDS[0], **{**best, name: value})["validation"])

    for name, values in choices:
        best[name] = min(values, key=partial(loss, name))
    return best


def best_rate(trainings: Trainings, optimizer: str, steps: int, **changes: Any) -> Record:
    """Returns the change of an optimizer's settings to its best rate on the first seed."""
    def loss(lr: float) -> float:
        return float(trainings.end(optimizer, steps, SEEDS[0], lr=lr, **changes)["validation"])

    rates = RATES.get(optimizer) or (float(char_lm.SETTINGS[optimizer]["lr"]),)
    return {"lr": min(trainings.rates(rates), key=loss)}


def passes(trainings: Trainings, optimizer: str, steps: int, goal: float, **changes: Any) -> bool:
    """Checks that the median of an optimizer's final losses reaches the goal. Stops as soon as most seeds missed it."""
    missed = 0
    for seed in trainings.seeds:
        missed += trainings.end(optimizer, steps, seed, **changes)["validation"] > goal
        if missed > len(trainings.seeds) // 2:
            return False
    return True


def reach(trainings: Trainings, optimizer: str, goal: float, whole: int) -> tuple[float, float, float]:
    """Returns the smallest share of the whole steps in which an optimizer reaches the goal, the duration, and the loss.
    A share of infinity: the largest share does not reach it."""
    low, high = 0, len(SHARES)                  # SHARES[low:high] are open; shares from `high` on reach the goal
    best = best_rate(trainings, optimizer, whole)
    while low < high:
        middle = (low + high) // 2
        if passes(trainings, optimizer, round(SHARES[middle] * whole), goal, **best):
            high = middle
        else:
            low = middle + 1
    if high == len(SHARES):
        return float("inf"), float("inf"), trainings.median(optimizer, round(SHARES[-1] * whole), **best)[0]
    loss, seconds = trainings.median(optimizer, round(SHARES[high] * whole), **best)
    return SHARES[high], seconds, loss


def arguments(about: str) -> argparse.ArgumentParser:
    """Returns the options that figures of the character model share."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after so many no more trainings begin")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a whole training")
    parser.add_argument("--batch", type=int, default=BATCH, help="sequences a step")
    parser.add_argument("--width", type=int, default=WIDTH, help="the model's width")
    parser.add_argument("--layers", type=int, default=LAYERS, help="the model's layers")
    parser.add_argument("--seeds", type=int, choices=range(1, len(SEEDS) + 1), default=len(SEEDS), help="how many")
    parser.add_argument("--rates-only", action="store_true", help="do not tune AdamW's betas and decay")
    return parser


def measured(measure: Callable[[Trainings], str], options: argparse.Namespace) -> None:
    """Prints what a function returns that measures with trainings, done by a daemon of its own. Ends the program as
    skipped if the minutes are over before."""
    given = os.environ.get("LOG")
    path = given or "build/lm.jsonl"
    if given is None and os.path.exists(path):
        os.unlink(path)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
    with paramd.local() as daemon:
        trainings = Trainings(path, daemon.url, options)
        try:
            print(measure(trainings))
        except OutOfTime:
            print(f"out of time after {len(trainings.ends)} trainings: LOG={path} goes on from these", file=sys.stderr)
            sys.exit(77)


def ratios_of(trainings: Trainings, kind: str, optimizers: list[str], steps: int) -> str:
    """Measures the figure, and returns its line."""
    best = tune(trainings, steps)
    goal, seconds = trainings.median("adamw", steps, **best)
    reached = {name: reach(trainings, name, goal, steps) for name in optimizers}
    ratios = {name: share if kind == "steps" else duration / seconds for name, (share, duration, _) in reached.items()}
    notes = ", ".join(f"{name} {ratios[name]:.2f} (loss {loss:.3f})" for name, (_, _, loss) in reached.items())
    value = ratios[optimizers[0]]
    return (f"{min(value, 99):.3f}\t{notes}; AdamW {goal:.3f} in {steps} steps of {trainings.options.batch} sequences, "
            f"{1e3 * seconds / steps:.0f} ms each, lr {best['lr']:g}, betas {best['betas']}, "
            f"decay {best['weight_decay']:g}")


def main() -> None:
    """Measures, and prints the figure."""
    parser = arguments("Steps or time of other optimizers to AdamW's final loss.")
    parser.add_argument("kind", choices=["steps", "time"])
    parser.add_argument("optimizers", nargs="*", default=["shampoo", "kron", "adafactor"])
    args = parser.parse_args()
    measured(lambda trainings: ratios_of(trainings, args.kind, args.optimizers, args.steps), args)


if __name__ == "__main__":
    main()

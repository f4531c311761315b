"""delay_cost: what late bases and roots cost on the character-level Transformer of client/python/examples/char_lm.py.
Usage: delay_cost.py [--minutes N] [--steps N] [OPTIMIZER...]

Each optimizer computes new bases (soap, kl_shampoo) or roots (shampoo) every 10 steps. It trains with them as soon as
upstream has them (root_delay = 1, or 0 for shampoo), 5 and 10 steps later, and as soon as they are ready: the steps
here are so long that this is a step or two. The rate is the best one of the first on the first of three seeds. The
figure is the median over the seeds of the loss that 10 steps add, in nats, of the first optimizer; the note has the
medians for all delays and optimizers.

Trainings, LOG and the options are those of lm_to_loss.py.
"""
from __future__ import annotations

import statistics

import lm_to_loss
from lm_to_loss import Trainings

EVERY = 10
OPTIMIZERS = {"kl_shampoo": 1, "soap": 1, "shampoo": 0}     # with upstream's delay
DELAYS = (5, EVERY, "ready")


def costs_of_one(trainings: Trainings, optimizer: str, steps: int) -> dict[int | str, tuple[float, float]]:
    """Returns for each delay the loss, and what it adds to that with upstream's delay: medians over the seeds."""
    every = {"precondition_frequency": EVERY}
    upstream = OPTIMIZERS[optimizer]
    best = lm_to_loss.best_rate(trainings, optimizer, steps, **every, root_delay=upstream)

    def losses(delay: int | str) -> list[float]:
        return [float(trainings.end(optimizer, steps, seed, **every, root_delay=delay, **best)["validation"])
                for seed in trainings.seeds]

    prompt = losses(upstream)
    late = {delay: losses(delay) for delay in (upstream, *DELAYS)}
    return {delay: (statistics.median(those), statistics.median(b - a for a, b in zip(prompt, those)))
            for delay, those in late.items()}


def costs_of(trainings: Trainings, optimizers: list[str], steps: int) -> str:
    """Measures the figure, and returns its line."""
    costs = {name: costs_of_one(trainings, name, steps) for name in optimizers}
    notes = "; ".join(f"{name} " + ", ".join(f"{delay}: {loss:.3f} ({added:+.3f})"
                                             for delay, (loss, added) in rows.items()) for name, rows in costs.items())
    return f"{costs[optimizers[0]][EVERY][1]:.3f}\t{notes}; {steps} steps, bases every {EVERY}"


def main() -> None:
    """Measures, and prints the figure."""
    parser = lm_to_loss.arguments("The loss that late bases and roots add.")
    parser.add_argument("optimizers", nargs="*", default=list(OPTIMIZERS))
    args = parser.parse_args()
    for name in args.optimizers:
        if name not in OPTIMIZERS:
            parser.error(f"expected some of {', '.join(OPTIMIZERS)}, got {name}")
    lm_to_loss.measured(lambda trainings: costs_of(trainings, args.optimizers, args.steps), args)


if __name__ == "__main__":
    main()

"""delay_cost: what late bases and roots cost on the character-level Transformer of client/python/examples/char_lm.py.
Usage: delay_cost.py [--minutes N] [--steps N] [OPTIMIZER...]

Each optimizer computes new bases (soap, kl_shampoo) or roots (shampoo) every 10 steps. It trains with them as soon as
upstream has them, and 10 steps later: with root_delay = 1 and 10, or 0 and 10 for shampoo. The rate is the best one of
the first on the first of three seeds. The figure is the median over the seeds of the loss that the delay adds, in nats,
of the first optimizer; the note has all of them, with the medians of the losses.

Trainings, LOG and the options are those of lm_to_loss.py.
"""
from __future__ import annotations

import statistics

import lm_to_loss
from lm_to_loss import SEEDS, Trainings

EVERY = 10
OPTIMIZERS = {"kl_shampoo": 1, "soap": 1, "shampoo": 0}     # with upstream's delay


def cost_of(trainings: Trainings, optimizer: str, steps: int) -> tuple[float, float, float]:
    """Returns the loss that a delay adds, and the losses without and with it: medians over the seeds."""
    prompt = {"precondition_frequency": EVERY, "root_delay": OPTIMIZERS[optimizer]}
    late = {"precondition_frequency": EVERY, "root_delay": EVERY}
    best = lm_to_loss.best_rate(trainings, optimizer, steps, **prompt)

    def losses(changes: dict[str, int]) -> list[float]:
        return [float(trainings.end(optimizer, steps, seed, **changes, **best)["validation"]) for seed in SEEDS]

    before, after = losses(prompt), losses(late)
    added = [b - a for a, b in zip(before, after)]
    return statistics.median(added), statistics.median(before), statistics.median(after)


def costs_of(trainings: Trainings, optimizers: list[str], steps: int) -> str:
    """Measures the figure, and returns its line."""
    costs = {name: cost_of(trainings, name, steps) for name in optimizers}
    notes = ", ".join(f"{name} {cost:.3f} ({before:.3f}, late {after:.3f})"
                      for name, (cost, before, after) in costs.items())
    return f"{costs[optimizers[0]][0]:.3f}\t{notes}; {steps} steps, bases every {EVERY}"


def main() -> None:
    """Measures, and prints the figure."""
    parser = lm_to_loss.arguments("The loss that late bases and roots add.")
    parser.add_argument("optimizers", nargs="*", default=list(OPTIMIZERS))
    args = parser.parse_args()
    for name in args.optimizers:
        if name not in OPTIMIZERS:
            parser.error(f"expected some of {', '.join(OPTIMIZERS)}, got {name}")
    lm_to_loss.measured(lambda trainings: costs_of(trainings, args.optimizers, args.steps), args.minutes)


if __name__ == "__main__":
    main()

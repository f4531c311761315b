"""Every example in the documents learns: after as many steps its loss is at most 2 % above AdamW's.

Each example of the tables is trained for some hundred steps. It is evaluated as the document has it, so a document that
changes must change here, too; and an example that no table has fails the last test.
"""
from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Callable

import learning
import pytest
from learning import needs_pictures, on_jax, on_pictures, on_text, torch

import paramd

ROOT = pathlib.Path(__file__).parent / "../.."
WITHIN = 1.02
OPTIM, TORCH, JAX = "server/optim/README.md", "client/python/TORCH.md", "client/python/JAX.md"
PACKAGE, PROGRAMS = "client/python/paramd", "client/python/examples"


@dataclass(frozen=True)
class Example:
    """An example of a document.

    text: as the document has it; several rules of one job are in a tuple. Blanks and ends of lines are one.
    against: the learning rate of the AdamW that it is compared with: the example's own, or torch's default where the
        example's rate is on another scale.
    swaps: parts of the text that are replaced before it is trained.
    """

    document: str
    text: str | tuple[str, ...]
    against: float = 1e-3
    on: Callable[..., float] = on_pictures
    swaps: dict[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def trained(self) -> tuple[str, ...]:
        """The parts with their swaps."""
        found = []
        for part in self.parts:
            for old, new in self.swaps.items():
                assert old in part or len(self.parts) > 1, (old, part)
                part = part.replace(old, new)
            found.append(part)
        return tuple(found)


def one_line(text: str) -> str:
    """Returns a text with single blanks, and with C's texts that follow each other put together."""
    plain = re.sub(r"\s+", " ", re.sub(r"^[ \t]*(\*|//|#|//!)[ \t](?=[ \t])", "", text, flags=re.M))
    return plain.replace('" "', "")


@cache
def document(path: str) -> str:
    return one_line((ROOT / path).read_text(encoding="utf-8"))


MOMENTUM = "* sgd lr=0.1 momentum=0.9"
MIXED = ("*.bias adamw lr=1e-3 weight_decay=0",
         "* shampoo lr=1e-3 betas=(0.9, 0.999) grafting_config=Adam use_merge_dims=no precondition_frequency=10 "
         "root_delay=10")
BOUNDED = "max_preconditioner_dim=8192 use_merge_dims=no precondition_frequency=100"
GRAFTED = f"epsilon=1e-12 weight_decay=1e-5 {BOUNDED}"
YOURS = {"<yours>": "1e-3"}
ROOTS = "preconditioning_compute_steps=20"

RULES = [
    Example("README.md", "* sgd lr=0.5"),
    Example("client/example/minimal.c", "* sgd lr=0.5"),
    Example("client/example/fashion.c", MOMENTUM),
    Example("client/README.md", MOMENTUM),
    Example("client/README.md", MIXED),
    Example("client/python/README.md", "* sgd lr=0.5"),
    Example("client/python/LOCAL.md", "* adamw lr=1e-3"),
    Example(f"{PACKAGE}/__init__.py", MOMENTUM),
    Example(f"{PACKAGE}/schedules.py", "* adamw lr=0.001 betas[0]=0.95"),
    Example("include/paramd/client.h", MOMENTUM),
    Example("include/paramd/client_options.h", "* sgd lr=linear_warmup(peak=0.5,warmup_steps=500)",
            swaps={"=500": "=5"}),
    Example(OPTIM, MIXED),
    Example(OPTIM, "* sgd lr=cosine(peak=0.1,steps=90000,warmup_steps=5000) momentum=piecewise(0.85,5000:0.95)",
            swaps={"90000": "200", "5000": "11"}),
    Example(OPTIM, "* ademamix lr=1e-3 alpha=8 alpha_warmup=90000 beta3_warmup=90000 weight_decay=0.01",
            swaps={"90000": "200"}),
    Example(OPTIM, "* schedule_free lr=2.5e-3 warmup_steps=1000 betas=(0.95, 0.999) weight_decay=0.01",
            swaps={"1000": "20"}),
    Example(OPTIM, "* gpa lr=1e-3 weight_decay=0.1 train_interp_coeff=0.7 eval_interp_coeff=0.9967",
            swaps={"0.9967": "0.8"}),
    Example(OPTIM, "* mars lr=3e-3 weight_decay=0.01 lr_1d=1e-3 weight_decay_1d=0.01"),
    Example(OPTIM, ("wte.* adamw lr=1e-3 weight_decay=0.1",
                    "* muon lr=0.02 weight_decay=0.1 adam_lr=1e-3 adam_weight_decay=0.1")),
    Example(OPTIM, "* muon lr=0.018 weight_decay=0 adam_lr=1e-3 hyperball=yes", on=on_text),
    Example(OPTIM, "* scalable_shampoo learning_rate=1e-3 beta2=0.99 block_size=128 graft_type=RMSPROP "
            "moving_average_for_momentum=yes preconditioning_compute_steps=20 root_delay=20"),
    Example(OPTIM, "graft_type=SGD learning_rate=<yours> beta1=<your momentum>",
            swaps={"graft": f"* scalable_shampoo {ROOTS} graft", "<yours>": "0.1", "<your momentum>": "0.9"}),
    Example(OPTIM, "graft_type=ADAGRAD learning_rate=<yours>",
            swaps={"graft": f"* scalable_shampoo {ROOTS} beta2=1 graft", "<yours>": "0.01"}),
    Example(OPTIM, "graft_type=RMSPROP learning_rate=<yours> moving_average_for_momentum=yes",
            swaps={"graft": f"* scalable_shampoo {ROOTS} graft", **YOURS}),
    Example(OPTIM, "learning_rate=0.05 beta2=0.99 block_size=128 preconditioning_compute_steps=20 root_method=eigh",
            swaps={"learning": "* scalable_shampoo learning"}),
    Example(OPTIM, "* shampoo lr=0.1 betas=0,0.999 epsilon=1e-12 momentum=0.9 weight_decay=1e-5 "
            f"{BOUNDED} grafting_config=SGD"),
    Example(OPTIM, f"* shampoo lr=0.001 betas=0.9,0.999 {GRAFTED} use_decoupled_weight_decay=no "
            "grafting_config=Adam(beta2=0.999,epsilon=1e-8)"),
    Example(OPTIM, f"* shampoo lr=0.01 betas=0,1 {GRAFTED} use_decoupled_weight_decay=no "
            "grafting_config=Adagrad(epsilon=1e-10)"),
    Example(OPTIM, f"* shampoo lr=0.001 betas=0.9,0.999 {GRAFTED} use_decoupled_weight_decay=yes "
            "grafting_config=Adam(beta2=0.999,epsilon=1e-8)"),
    Example(OPTIM, "lr=0.002 betas=0.9,0.999 grafting_config=Adam use_merge_dims=no precondition_frequency=10",
            swaps={"lr": "* shampoo lr"}, against=2e-3),
    Example(OPTIM, "* kron learning_rate=1e-3 preconditioner_init_scale=100 merge_small_dims=no pad_blocks=no "
            "weight_decay=0.01 weight_decay_min_ndim=2 root_delay=1"),
    Example(OPTIM, "learning_rate=0.001 merge_small_dims=no partition_grads_into_blocks=no "
            "preconditioner_update_probability=0.2 preconditioner_lr=0.3 preconditioner_init_scale=100",
            swaps={"learning": "* kron learning"}),
    Example(OPTIM, "* kron dQ=QUAD learning_rate=3e-3 preconditioner_init_scale=100 merge_small_dims=no "
            "weight_decay=0.01 root_delay=1", against=3e-3),
    Example(OPTIM, "* kl_shampoo lr=1e-2 shampoo_beta=0.9 block_size=128 orthogonalize=yes", against=1e-2),
    Example(OPTIM, "* shampoo lr=1e-3 betas=0.9,0.95 epsilon=1e-3 use_merge_dims=no inv_root_override=2 "
            "precondition_frequency=10 preconditioner_config=RootInvKLShampoo preconditioner_config.normalize=yes "
            "grafting_config=Adam"),
    Example(OPTIM, "* shampoo semantics=2026 preconditioner_config=EigenvalueCorrectedShampoo lr=1e-2 betas=0.9,0.95 "
            "epsilon=1e-8 precondition_frequency=10 target_parameter_dimensionality=inf max_preconditioner_dim=128",
            against=1e-2),
    Example(OPTIM, "* soap lr=1e-2 block_size=128", against=1e-2),
    Example(OPTIM, "* kl_shampoo lr=1e-2 shampoo_beta=0.9 block_size=128", against=1e-2),
    Example(OPTIM, "* adafactor learning_rate=0.05 beta1=0.9 factor_map=['.*/attention/':(BATCH,ROW,COLUMN), "
            "'.*':HEURISTIC]"),
    Example(OPTIM, "learning_rate=0.04 beta1=0.9 decay_rate=0.95", swaps={"learning": "* adafactor learning"}),
]

PYTORCH = [
    Example("client/python/README.md", 'rows.rule("*.bias", "adamw", {"lr": 1e-3, "weight_decay": 0})',
            swaps={".bias": ""}),
    Example("client/python/README.md", 'rows.rule("*", "shampoo", {"lr": 1e-3, "betas": (0.9, 0.999), '
            '"grafting_config": {"type": "adam"}, "precondition_frequency": 10, "use_merge_dims": False})'),
    Example("server/net/dashboard.html", 'paramd.torch.Optimizer(model, "adamw", lr=1e-3, url="tcp://HOST:PORT")',
            swaps={', url="tcp://HOST:PORT"': ""}),
    Example(TORCH, "optim.AdamW(model.parameters(), lr=1e-3)"),
    Example(TORCH, 'paramd.torch.Optimizer(model, "shampoo", lr=1e-3)', on=on_text),
    Example(TORCH, 'paramd.torch.Optimizer(model, "adamw", lr=1e-2)', against=1e-2),
    Example(TORCH, 'paramd.torch.Optimizer(model, "adamw", lr=1e-2, worker_state=state)', against=1e-2),
    Example(TORCH, 'paramd.torch.Optimizer(model, "kron", lr=1e-3)', on=on_text),
    Example(TORCH, 'paramd.torch.Optimizer(model, "scalable_shampoo", lr=1e-3)', on=on_text),
    Example(TORCH, 'paramd.torch.Optimizer(model, "shampoo", lr=1e-3, weight_decay=0.01, precondition_frequency=20)'),
    Example(TORCH, 'paramd.torch.Optimizer(model, "shampoo", lr=1e-3, betas=(0.9, 0.99), '
            'grafting_config={"type": "adam", "beta2": 0.99, "epsilon": 1e-8})'),
    Example(TORCH, 'paramd.torch.Optimizer(self, "adamw", lr=1e-2)', 1e-2, swaps={"self": "model"}),
    Example(TORCH, 'paramd.torch.TrainerFactory, {"optimizer": "adamw", "lr": 1e-2}', 1e-2),
    Example(TORCH, '(paramd.torch.optim.AdamW, {"lr": 1e-3})'),
    Example(f"{PACKAGE}/torch/trainer.py", '(TrainerFactory, {"optimizer": "shampoo"})'),
    Example(f"{PACKAGE}/torch/__init__.py", 'paramd.torch.Optimizer(model, "shampoo", lr=1e-3)'),
    Example(f"{PACKAGE}/torch/worker_state.py", 'paramd.torch.Optimizer(model, "adamw", lr=1e-3, worker_state=state)'),
    Example(f"{PROGRAMS}/fashion.py", 'paramd.torch.Optimizer(model, "shampoo", lr=2e-3)', 2e-3),
    Example(f"{PROGRAMS}/fashion_adamw.py", "AdamW(model.parameters(), lr=2e-3)", 2e-3),
    Example(f"{PROGRAMS}/fashion_plain.py", "AdamW(model.parameters(), lr=2e-3)", 2e-3),
    Example(f"{PROGRAMS}/hf_trainer.py", '(TrainerFactory, {"optimizer": "adamw", "lr": 3e-3, "contribute": "rank0"})',
            3e-3),
]

RATE = "optax.warmup_cosine_decay_schedule(0.0, 1e-3, warmup_steps=10, decay_steps=100)"
IN_JAX = [
    Example(JAX, 'paramd.jax.Remote(params, "adamw", job="first", learning_rate=1e-2)', against=1e-2),
    Example(JAX, 'paramd.jax.Remote(params, "adamw", job="schedules", learning_rate=rate, b2=0.95, weight_decay=0.1, '
            'rules=[("*/bias", "adamw", {"learning_rate": rate, "weight_decay": 0.0})])', swaps={"=rate": f"={RATE}",
            ": rate": f": {RATE}", "decay_steps=100": "decay_steps=2000"}),
    Example(JAX, 'paramd.jax.Remote(params, "shampoo", learning_rate=1e-3)'),
    Example(JAX, 'paramd.jax.Remote(params, "kron", learning_rate=1e-3)'),
    Example(JAX, 'paramd.jax.Remote(params, "scalable_shampoo", learning_rate=1e-3)'),
    Example(JAX, 'paramd.jax.Remote(params, "shampoo", learning_rate=1e-3, b2=0.99, '
            'grafting_config={"type": "adam", "beta2": 0.99, "epsilon": 1e-8})'),
    Example(JAX, 'paramd.jax.Remote({"w": jnp.ones(3)}, "sgd", job="durable", learning_rate=0.1, momentum=0.9)',
            swaps={'{"w": jnp.ones(3)}': "params"}),
    Example(JAX, 'paramd.optax.remote("soap", learning_rate=1e-2, block_size=128)', against=1e-2),
    Example(JAX, 'paramd.optax.remote("kl_shampoo", learning_rate=1e-2, shampoo_beta=0.9, block_size=128)',
            against=1e-2),
    Example(JAX, 'paramd.optax.remote("ademamix", learning_rate=1e-3, alpha=8, alpha_warmup=90000, '
            'beta3_warmup=90000)', swaps={"90000": "200"}),
    Example(JAX, 'paramd.optax.remote("mars", learning_rate=3e-3, weight_decay=0.01, lr_1d=1e-3, '
            'weight_decay_1d=0.01)'),
    Example(JAX, 'paramd.optax.remote("muon", learning_rate=0.02, adjust_lr_fn="in_out", adam_lr=1e-3)'),
    Example(JAX, 'paramd.optax.remote("kron", dQ="QUAD", learning_rate=3e-3)', against=3e-3),
    Example(JAX, 'optax.chain(optax.clip_by_global_norm(1.0), paramd.optax.remote("adamw", job="jitted", '
            'learning_rate=1e-2))', against=1e-2),
    Example(f"{PACKAGE}/jax.py", 'paramd.jax.Remote(params, "adamw", learning_rate=1e-3, b2=0.95)'),
    Example(f"{PACKAGE}/jax.py", '("*/bias", "adamw", {"learning_rate": 1e-3, "weight_decay": 0.0})',
            swaps={"(": 'paramd.jax.Remote(params, "adamw", learning_rate=1e-3, rules=[(', ")": ")])"}),
    Example(f"{PACKAGE}/optax.py", 'optax.chain(optax.clip_by_global_norm(1.0), '
            'paramd.optax.remote("adamw", learning_rate=1e-3))'),
]


@pytest.fixture
def server(daemon, job, monkeypatch):
    """The daemon and the job of whoever names none."""
    monkeypatch.setenv("PARAMD_URL", daemon.url)
    monkeypatch.setenv("PARAMD_JOB", job)


def examples(table):
    """Parametrizes a test by the examples of a table, by document and text."""
    names = [f"{one.document.rpartition('/')[2]}-{i}" for i, one in enumerate(table)]
    return pytest.mark.parametrize("example", table, ids=names)


@cache
def adamw(on: Callable[..., float], rate: float) -> float:
    """Returns AdamW's loss."""
    return on(lambda model: torch.optim.AdamW(model.parameters(), lr=rate))


@cache
def adamw_of_optax(rate: float, clips: bool) -> float:
    """Returns AdamW's loss in JAX."""
    import optax

    plain = optax.adamw(rate, weight_decay=0.01)
    chain = optax.chain(optax.clip_by_global_norm(1.0), plain) if clips else plain
    return on_jax(lambda params: learning.of_transformation(chain, params))


trained = cache(lambda loss_of, *what: loss_of(*what))      # the loss of an example that several documents have


def check(loss: float, reference: float) -> None:
    print(f"loss {loss:.4f}, {loss / reference:.3f} of AdamW's")
    assert loss <= WITHIN * reference, f"loss {loss:.4f}, {loss / reference:.3f} of AdamW's {reference:.4f}"


# ---- the examples ----

def loss_of_rules(on, rules):
    import paramd.torch

    return on(lambda model: paramd.torch.Optimizer(model, client=paramd.Client(rules=rules)))


@needs_pictures
@examples(RULES)
def test_rules_of_a_document_learn(server, example):
    check(trained(loss_of_rules, example.on, example.trained), adamw(example.on, example.against))


def loss_in_torch(on, expression):
    from paramd.torch import TrainerFactory, WorkerState, optim

    def make(model):
        made = eval(expression, {"paramd": paramd, "torch": torch, "optim": optim, "model": model,
                                 "state": WorkerState(), "AdamW": optim.AdamW, "TrainerFactory": TrainerFactory,
                                 "rows": paramd.rows})
        if isinstance(made, str):
            made = paramd.torch.Optimizer(model, client=paramd.Client(rules=made))
        elif isinstance(made, tuple):               # what a Trainer takes: a factory or a class, and its arguments
            maker, arguments = made
            made = maker()(model, **arguments) if maker is TrainerFactory else maker(model.parameters(), **arguments)
        made.join()
        return made

    return on(make)


@needs_pictures
@examples(PYTORCH)
def test_an_optimizer_of_a_document_learns(server, example):
    check(trained(loss_in_torch, example.on, *example.trained), adamw(example.on, example.against))


def loss_in_jax(expression):
    import optax

    import paramd.jax
    import paramd.optax

    def make(params):
        made = eval(expression, {"paramd": paramd, "optax": optax, "params": params})
        if isinstance(made, paramd.jax.Remote):
            return made.pull(), made.step
        return learning.of_transformation(made, params)

    return on_jax(make)


@needs_pictures
@examples(IN_JAX)
def test_an_optimizer_for_jax_learns(server, example):
    pytest.importorskip("optax", reason="optax is not installed")
    check(trained(loss_in_jax, *example.trained), adamw_of_optax(example.against, "clip_by" in example.trained[0]))


@pytest.mark.parametrize("optimizer", sorted(set(learning.char_lm.SETTINGS) - {"adamw"}))
def test_the_settings_of_char_lm_learn(server, optimizer):
    check(trained(learning.of_char_lm, optimizer), trained(learning.of_char_lm, "adamw"))


@pytest.mark.parametrize("optimizer", ["lion", "kron", "shampoo", "scalable_shampoo"])
def test_the_settings_of_char_lm_in_jax_learn(server, monkeypatch, optimizer):
    pytest.importorskip("jax", reason="JAX is not installed")
    loss = trained(learning.of_char_lm_jax, optimizer)
    monkeypatch.setenv("PARAMD_JOB", "char-lm-jax-adamw")
    check(loss, trained(learning.of_char_lm_jax, "adamw"))


def test_no_setting_of_char_lm_in_jax_is_left_out():
    pytest.importorskip("jax", reason="JAX is not installed")
    import char_lm_jax

    assert set(char_lm_jax.OPTIMIZERS) == {"adamw", "lion", "kron", "shampoo", "scalable_shampoo"}


# ---- tables and documents agree ----

TABLES = [*RULES, *PYTORCH, *IN_JAX]
# What looks like an example and is none.
OTHERS = {
    OPTIM: ["* scalable_shampoo block_size=128 preconditioning_compute_steps=20 root_delay=20",     # paramctl plan
            "* delayed_nesterov period=4 lr=0.7 momentum=0.9"],     # an outer optimizer: it takes weight differences
    "include/paramd/diloco.h": ["* sgd lr=0.7 momentum=0.9 nesterov=true", "* sgd lr=1 momentum=0"],     # as above
    "client/example/diloco.c": ["* sgd lr=0.7 momentum=0.9 nesterov=true"],
    "client/README.md": ["* sgd lr=0.7 momentum=0.9 nesterov=true", "* sgd lr=1",
                         "* delayed_nesterov lr=0.07 momentum=0.9 period=4"],
    f"{PACKAGE}/outer_plan.py": ["* sgd lr=0.5", "* sgd lr=0.7"],       # as above
    f"{PACKAGE}/torch/diloco.py": ["* sgd lr=0.5"],                     # as above
    f"{PACKAGE}/rounds.py": ['paramd.torch.Optimizer(model, "adamw", lr=1e-3'],     # arguments of rounds
    f"{PACKAGE}/torch/averager.py": ["* asgd lr=1 lambd=1 alpha=0 maximize=yes"],     # the code of an average
}
DOCUMENTS = ("*.md", "client/**/*.md", "server/**/*.md", "deploy/**/*.md", "include/**/*.h", "client/example/*.c",
             f"{PACKAGE}/**/*.py", f"{PROGRAMS}/*.py", "server/net/dashboard.html")
A_RULE = re.compile(rf"(?<![\w.])[\w.]*\*[*\w.]* ({'|'.join(paramd.rows.names())}) [\w.\[\]]+=")
A_CLASS = r"(paramd\.torch\.|(?<!torch\.)\b)optim\.[A-Z]\w*"
A_CALL = re.compile(r"((paramd\.(torch\.Optimizer|jax\.Remote|optax\.remote)|rows\.rule|(?<![\w.])AdamW|"
                    rf"{A_CLASS})\(|(TrainerFactory|{A_CLASS}), \{{)")


@pytest.mark.parametrize("path", sorted({one.document for one in TABLES}))
def test_a_document_has_its_examples(path):
    for example in TABLES:
        for part in example.parts:
            assert example.document != path or one_line(part) in document(path), f"{path} has not: {part}"


def call_at(text: str, first: int, last: int) -> str:
    """Returns a call from its name to the bracket that closes it. last: the opening bracket."""
    depth = 0
    for i in range(last, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return text[first:i + 1]
    return text[first:]


def examples_of(path: str) -> list[str]:
    """Returns whatever looks like an example in a document: rules, and calls that give a learning rate."""
    text = document(path)
    rules = [text[match.start():match.start() + 200] for match in A_RULE.finditer(text)]
    calls = [call_at(text, match.start(), match.end() - 1) for match in A_CALL.finditer(text)]
    return rules + [call for call in calls if re.search(r"\b(lr|learning_rate)\W{1,3}[\w.]", call)]


def test_no_example_of_a_document_is_left_out():
    paths = sorted({str(path.relative_to(ROOT)) for glob in DOCUMENTS for path in ROOT.glob(glob)})
    assert len(paths) > 50
    for path in paths:
        if path == "CHANGELOG.md":
            continue
        known = [one_line(part) for example in TABLES if example.document == path for part in example.parts]
        for found in examples_of(path):
            assert any(found.startswith(part) or found in part for part in [*known, *OTHERS.get(path, [])]), \
                f"{path}: test_learning.py does not train: {found}"

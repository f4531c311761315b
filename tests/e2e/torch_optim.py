"""Compares the library with PyTorch: weights and state after every step, for random configurations, shapes and
gradients.

The library is called through ctypes as paramd/optim.h says. Options that the installed PyTorch lacks are made by hand:
decoupled decay shrinks the weights before a step without decay, and maximize negates the gradient. Lion and LAMB are
their papers' formulas in torch's operations.
Usage: torch_optim.py [SEED [CASES]]"""
import ctypes as C
import math
import os
import random
import sys

import torch

RANK, HYPERS, TEXT = 8, 64, 512
ULP = 2.0 ** -24
CASES = int(sys.argv[2]) if len(sys.argv) > 2 else 12
torch.set_num_threads(1)
OLD = int(torch.__version__.split(".")[0]) < 2      # NAdam counts mu twice, unless it steps by foreach


# ---- the library ----

class Shape(C.Structure):
    _fields_ = [("rank", C.c_int), ("dim", C.c_int64 * RANK)]


class Hypers(C.Structure):
    _fields_ = [("row", C.c_void_p), ("value", C.c_double * HYPERS), ("scheduled", C.c_uint64),
            ("schedules", C.c_void_p)]


class Declaration(C.Structure):
    _fields_ = [("name", C.c_char_p), ("shape", Shape), ("hypers", Hypers), ("group", C.c_int)]


class StepIo(C.Structure):
    _fields_ = [("gradient", C.c_void_p), ("before", C.c_void_p), ("after", C.c_void_p),
            ("hypers", C.POINTER(C.c_double)),
                ("hypers_mask", C.c_uint64), ("update", C.c_void_p)]


class Error(C.Structure):
    _fields_ = [("code", C.c_int), ("text", C.c_char * TEXT)]


lib = C.CDLL(os.path.join(os.environ["PARAMD_BIN"], "../lib/libparamd_optim.so"))
lib.pd_optim_find.restype = C.c_void_p
lib.pd_optim_find.argtypes = [C.c_char_p]
lib.pd_hypers_init.argtypes = [C.POINTER(Hypers), C.c_void_p]
lib.pd_model_free.argtypes = [C.c_void_p]
lib.pd_model_step.argtypes = [C.c_void_p, C.POINTER(StepIo), C.POINTER(Error)]
lib.pd_model_read_part.argtypes = [C.c_void_p, C.c_size_t, C.c_char_p, C.c_int, C.c_int, C.c_void_p, C.c_int64,
        C.POINTER(Error)]
error = Error()


def must(code):
    if code != 0:
        raise SystemExit("the library refuses: " + error.text.decode())


def text(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(repr, value)) if isinstance(value, tuple) else repr(value)


class Ours:
    """Parameters of one row that step together."""

    def __init__(self, row, options, tensors):
        self.hypers, self.mask, self.tensors = Hypers(), C.c_uint64(0), [t.clone() for t in tensors]
        lib.pd_hypers_init(C.byref(self.hypers), lib.pd_optim_find(row.encode()))
        self.set(options)
        self.mask = C.c_uint64(0)
        must(lib.pd_hypers_check(C.byref(self.hypers), C.byref(error)))
        declared = (Declaration * len(tensors))()
        for d, t in zip(declared, tensors):
            d.name, d.hypers, d.shape.rank = b"w", self.hypers, t.dim()
            for i, n in enumerate(t.shape):
                d.shape.dim[i] = n
        self.model = C.c_void_p()
        must(lib.pd_model_new(C.byref(self.model), declared, C.c_size_t(len(tensors)), 2, C.byref(error)))

    def set(self, options):
        for name, value in options.items():
            must(lib.pd_hypers_set_which(C.byref(self.hypers), name.encode(), text(value).encode(), C.byref(self.mask),
                    C.byref(error)))

    def step(self, gradients):
        io = (StepIo * len(gradients))()
        for one, t, g in zip(io, self.tensors, gradients):
            one.gradient = None if g is None else g.data_ptr()
            one.before = one.after = t.data_ptr()
            one.hypers, one.hypers_mask = C.cast(self.hypers.value, C.POINTER(C.c_double)), self.mask
        must(lib.pd_model_step(self.model, io, C.byref(error)))

    def slot(self, i, name, like):
        out = torch.empty(like.shape if like.dim() > 0 else (1,), dtype=torch.float64)
        must(lib.pd_model_read_part(self.model, i, name.encode(), -1, -1, out.data_ptr(), out.numel(), C.byref(error)))
        return out

    def free(self):
        lib.pd_model_free(self.model)


# ---- what PyTorch has not ----

class Lion(torch.optim.Optimizer):
    def __init__(self, params, **options):
        super().__init__(params, {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, **options})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - lr * group["weight_decay"])
                p.add_((m * b1).add_(p.grad, alpha=1 - b1).sign(), alpha=-lr)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, **options):
        super().__init__(params, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01,
                "bias_correction": True,
                                  "grad_averaging": True, "trust_clip": False, "always_adapt": False, **options})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), decay = group["betas"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                m, v = state.setdefault("exp_avg", torch.zeros_like(p)), state.setdefault("exp_avg_sq",
                        torch.zeros_like(p))
                state["step"] = t = state.get("step", 0) + 1
                m.mul_(b1).add_(p.grad, alpha=1 - b1 if group["grad_averaging"] else 1)
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                c1, c2 = (1 - b1 ** t, 1 - b2 ** t) if group["bias_correction"] else (1, 1)
                u = (m / c1) / (v.sqrt() / math.sqrt(c2)).add_(group["eps"])
                if decay != 0:
                    u.add_(p, alpha=decay)
                if decay != 0 or group["always_adapt"]:
                    w_norm, u_norm = p.double().norm().item(), u.double().norm().item()
                    ratio = w_norm / u_norm if w_norm > 0 and u_norm > 0 else 1.0
                    u.mul_(min(ratio, 1.0) if group["trust_clip"] else ratio)
                p.add_(u, alpha=-group["lr"])


# ---- configurations ----

draw = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)


def some(options, **values):
    """Each of the values with a probability of a half: the others are as by default."""
    return {**options, **{k: v for k, v in values.items() if draw.random() < 0.5}}


def rate():
    return draw.choice([1e-4, 1e-3, 1e-2, 0.1]) * draw.uniform(1, 9)


def betas():
    return (draw.choice([0.0, 0.5, 0.9, draw.random()]), draw.choice([0.9, 0.999, draw.uniform(0.5, 1)]))


def common():
    return some({"lr": rate()}, eps=draw.choice([1e-12, 1e-8, 1e-4, 0.1]), weight_decay=draw.choice([1e-4, 0.01, 0.3]),
            maximize=draw.random() < 0.5)


def without(options, *names):
    return {k: v for k, v in options.items() if k not in names}


def adam():
    return some(common(), betas=betas(), amsgrad=True)


def turned():
    return some(common(), betas=betas(), decoupled_weight_decay=True)


# name: PyTorch's class, a random configuration, and what changes with lr while it runs
ROWS = {
    "sgd": (torch.optim.SGD, lambda: {**without(common(), "eps"),
            **draw.choice([{}, {"momentum": 0.9}, {"momentum": 0.8, "dampening": 0.3},
            {"momentum": 0.9, "nesterov": True}])},
            lambda lr: {"lr": lr}),
    "adam": (torch.optim.Adam, adam, lambda lr: {"lr": lr, "betas": betas()}),
    "adamw": (torch.optim.AdamW, adam, lambda lr: {"lr": lr, "weight_decay": 0.2}),
    "adagrad": (torch.optim.Adagrad, lambda: some(common(), lr_decay=draw.random(),
            initial_accumulator_value=draw.random()),
                lambda lr: some({"lr": lr}, lr_decay=draw.random())),
    "rmsprop": (torch.optim.RMSprop, lambda: some(common(), alpha=draw.uniform(0.5, 1), centered=True,
            momentum=draw.uniform(0.1, 0.99)),
                lambda lr: {"lr": lr, "alpha": draw.uniform(0.8, 1)}),
    "nadam": (torch.optim.NAdam, lambda: some(turned(), momentum_decay=draw.choice([0.0, 0.04, 1.0])),
              lambda lr: some({"lr": lr, "betas": betas()}, momentum_decay=draw.random())),
    "radam": (torch.optim.RAdam, turned, lambda lr: {"lr": lr, "betas": betas()}),
    "adamax": (torch.optim.Adamax, lambda: some(common(), betas=betas()), lambda lr: {"lr": lr, "betas": betas()}),
    "adadelta": (torch.optim.Adadelta, lambda: some({**common(), "lr": draw.uniform(0.1, 2)}, rho=draw.random()), lambda
            lr: {"lr": lr, "rho": draw.random()}),
    "rprop": (torch.optim.Rprop, lambda: some(without(common(), "eps", "weight_decay"),
            etas=(draw.uniform(0.1, 0.9), draw.uniform(1.1, 3)),
                                              step_sizes=(1e-3, draw.uniform(0.002, 0.1))),
              lambda lr: some({"lr": lr}, etas=(0.4, 1.5), step_sizes=(1e-4, 0.05))),
    "asgd": (torch.optim.ASGD, lambda: some(without(common(), "eps"), lambd=draw.uniform(0, 0.1), alpha=draw.random(),
            t0=draw.choice([0.0, 2.0, 2.5, 1e6])),
             lambda lr: some({"lr": lr}, lambd=0.01, alpha=0.9, t0=1.0)),
    "lamb": (Lamb, lambda: some(without(common(), "maximize"), betas=betas(), bias_correction=False,
            grad_averaging=False, trust_clip=True, always_adapt=True),
             lambda lr: {"lr": lr, "betas": betas()}),
    "lion": (Lion, lambda: some(without(common(), "eps"), betas=betas()), lambda lr: {"lr": lr, "betas": betas()}),
}


# ---- a case ----

class Theirs:
    """The same with PyTorch's optimizer; options that it lacks are done by hand."""

    def __init__(self, row, options, tensors, foreach):
        self.params = [torch.nn.Parameter(t.clone()) for t in tensors]
        self.by_hand = {}
        more = {"foreach": True} if foreach else {}
        cls = ROWS[row][0]
        is_torch = cls.__module__.startswith("torch.optim")
        known = set(cls.__init__.__code__.co_varnames) if is_torch else set(options) - {"maximize"}
        self.by_hand = {k: options[k] for k in ("maximize", "decoupled_weight_decay") if k in options and k not in
                known}
        if self.by_hand.get("decoupled_weight_decay"):
            self.by_hand["weight_decay"] = options.get("weight_decay", 0)
            options = {**options, "weight_decay": 0}
        self.optim = cls(self.params, **without(options, *(k for k in self.by_hand if k not in known)), **more)

    def set(self, options):
        self.optim.param_groups[0].update(options)

    @torch.no_grad()
    def step(self, gradients):
        for p, g in zip(self.params, gradients):
            # foreach writes to it
            p.grad = None if g is None else -g if self.by_hand.get("maximize") else g.clone()
            if g is not None and self.by_hand.get("decoupled_weight_decay"):
                p.mul_(1 - self.optim.param_groups[0]["lr"] * self.by_hand["weight_decay"])
        self.optim.step()


def apart(a, b):
    """Norm of the difference over what is finite; what is not must coincide."""
    a, b = a.double().flatten(), b.double().flatten()
    odd = ~(a.isfinite() & b.isfinite())
    if not ((a == b) | (a.isnan() & b.isnan()))[odd].all():
        return math.inf
    return (a - b)[~odd].norm().item()


def size(t):
    return t.double()[t.isfinite()].norm().item()


def case(row):
    options, scale = ROWS[row][1](), draw.choice([0.0, 1e-3, 1.0])
    shapes = [draw.choice([(), (1,), (7,), (3, 5), (40, 33), (2, 3, 4), (150,)]) for _ in range(draw.randint(1, 3))]
    start = [torch.randn(s) * scale for s in shapes]
    foreach, spoil, steps = row == "nadam" and draw.random() < 0.5, draw.random() < 0.15, draw.randint(1, 25)
    theirs = Theirs(row, options, start, foreach)
    twice = {"mu_counted_twice": True} if row == "nadam" and OLD and not foreach else {}
    ours = Ours(row, {**options, **twice}, start)
    path = [size(t) for t in start]                 # how far each has come: what rounding is measured by
    peak = {}                                       # how large a parameter's state has been, by its name
    log, worst = "%s %s %s" % (row, options, shapes), 0.0
    for step in range(1, steps + 1):
        if draw.random() < 0.15:
            change = ROWS[row][2](theirs.optim.param_groups[0]["lr"] * draw.uniform(0.2, 5))
            theirs.set(change), ours.set(change)
            log += "; %s before step %d" % (change, step)
        gradients = [None if draw.random() < 0.1 else torch.randn(s) * draw.choice([1e-4, 1.0, 30.0]) for s in shapes]
        if spoil and step == steps // 2 + 1 and gradients[0] is not None:
            gradients[0].view(-1)[0] = draw.choice([math.inf, -math.inf, math.nan])
        was = [p.detach().clone() for p in theirs.params]
        theirs.step(gradients), ours.step(gradients)
        for i, p in enumerate(theirs.params):
            path[i] += size(p.detach() - was[i]) + size(p.detach()) / 4
            off = apart(ours.tensors[i], p.detach()) / (ULP * path[i] + 1e-38)
            worst = max(worst, off)
            if not off <= 16:
                raise SystemExit("%s: parameter %d is off by %.3g ulp after step %d" % (log, i, off, step))
            for name, value in theirs.optim.state[p].items():
                if name == "step" or value is None:
                    continue
                value = torch.as_tensor(value)
                peak[i, name] = max(peak.get((i, name), 0.0), size(value))
                off = apart(ours.slot(i, name, value), value) / (ULP * peak[i, name] + 1e-38)
                # a single number may be what is left of a difference
                if not off <= (32 if value.numel() > 20 else 4096):
                    raise SystemExit("%s: %s of parameter %d is off by %.3g ulp after step %d" %
                            (log, name, i, off, step))
    ours.free()
    return worst


torch.manual_seed(draw.randint(0, 2 ** 31))
for name in ROWS:
    print("%-9s %d cases, at most %.2f ulp of the way apart" % (name, CASES, max(case(name) for _ in range(CASES))),
            flush=True)

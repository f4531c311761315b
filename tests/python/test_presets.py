"""Python's defaults of the second-order optimizers, and hyperparameters as dicts."""
from __future__ import annotations

import dataclasses
import enum

import pytest

import paramd
from paramd import presets, rows
from paramd.schedules import Hypers

INVALID = paramd.InvalidArgument


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    """The user was not told of any preset yet."""
    monkeypatch.setattr(presets, "_told", set())
    monkeypatch.delenv("RANK", raising=False)


def words(rule):
    """The settings of a rule, by name."""
    return dict(word.split("=", 1) for word in rule.split()[2:])


def of_torch(optimizer, given):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from paramd.torch.hypers import row

    known = row(optimizer)
    known.tell(known.canonical(given))
    return known.rule("*", known.canonical(given))


def of_jax(optimizer, given):
    return Hypers(optimizer, given).rule("*")


faces = pytest.mark.parametrize("rule", [of_torch, of_jax])


# ---- presets ----

@pytest.mark.parametrize("optimizer", ["shampoo", "scalable_shampoo", "kron"])
def test_a_preset_has_only_hyperparameters_of_its_optimizer(optimizer):
    assert presets.of(optimizer) and set(presets.of(optimizer)) <= set(rows.hypers(optimizer))


@faces
def test_what_is_left_out_has_the_preset_s_value(rule):
    found = words(rule("shampoo", {"lr": 0.5, "precondition_frequency": 3}))
    assert (found["grafting_config"], found["lr"], found["precondition_frequency"]) == ("Adam", "0.5", "3")
    assert words(rule("kron", {}))["merge_small_dims"] == "no"


@faces
def test_an_optimizer_without_a_preset_keeps_upstream_s_defaults(rule):
    assert rule("adamw", {}) == rule("adamw", {"preset": "upstream"}) == "* adamw"


@faces
def test_upstream_brings_back_upstream_s_defaults_and_nothing_else(rule):
    found = words(rule("shampoo", {"preset": "upstream", "lr": 0.5}))
    assert (found["grafting_config"], found["precondition_frequency"], found["lr"]) == ("none", "1", "0.5")


def test_a_rule_text_keeps_upstream_s_defaults():
    assert rows.rule("*", "shampoo", {"lr": 0.5}) == "* shampoo lr=0.5"


@faces
def test_an_early_start_makes_the_first_roots_as_early(rule):
    assert words(rule("shampoo", {"start_preconditioning_step": 4}))["precondition_frequency"] == "4"
    assert words(rule("shampoo", {"start_preconditioning_step": 40}))["precondition_frequency"] == "10"


def test_one_entry_of_a_list_leaves_the_other_to_the_preset():
    found = words(of_jax("shampoo", {"b2": 0.95}))
    assert (found["betas[0]"], found["betas[1]"]) == ("0.9", "0.95")


@faces
def test_another_preset_is_refused_with_those_that_there_are(rule):
    with pytest.raises(INVALID, match='shampoo preset: expected "adamw" .* or "upstream" .*, got \'adam\''):
        rule("shampoo", {"preset": "adam"})


@faces
def test_the_user_is_told_once_of_what_was_left_out(rule, capsys):
    rule("shampoo", {"lr": 0.5})
    rule("shampoo", {"lr": 0.5})
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "grafting_config='Adam'" in told and 'preset="upstream"' in told
    assert "lr=" not in told.replace("_lr=", "")


@faces
@pytest.mark.parametrize("given", [{"preset": "adamw"}, {"preset": "upstream"}, presets.of("kron")])
def test_who_has_chosen_is_told_nothing(rule, given, capsys):
    rule("kron", given)
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("ignore::paramd.errors.ParamdWarning")
def test_kron_s_preset_bounds_its_factors_where_upstream_s_defaults_do_not(daemon, job):
    numpy = pytest.importorskip("numpy")
    shapes = {"kernel": (64, 32), "conv": (3, 3, 16, 8), "bias": (512,), "large": (300, 700)}
    notes = {}
    for preset in ("adamw", "upstream"):
        with paramd.Client(daemon.url, f"{job[:40]}-{preset}", rules=of_jax("kron", {"preset": preset})) as client:
            client.declare({name: numpy.zeros(shape, numpy.float32) for name, shape in shapes.items()})
            notes[preset] = [client.note_of(name) for name in shapes]
    assert not any(notes["adamw"]) and "256 numbers for each weight" in notes["upstream"][0]


def test_the_arguments_of_a_drop_in_class_show_the_preset():
    import inspect

    pytest.importorskip("torch", reason="PyTorch is not installed")
    from paramd.torch.optim import Shampoo

    arguments = inspect.signature(Shampoo).parameters
    assert (arguments["lr"].default, arguments["grafting_config"].default) == (1e-3, "Adam")


def test_a_group_has_a_preset_of_its_own():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import paramd.torch

    model = torch.nn.Linear(2, 1)
    groups = [{"params": [("weight", model.weight)]},
              {"params": [("bias", model.bias)], "preset": "upstream", "lr": 0.5}]
    first, second = paramd.torch.Optimizer(groups, "shampoo").param_groups
    assert (first["grafting_config"], second["grafting_config"], second["lr"]) == ("Adam", "none", 0.5)


@pytest.mark.parametrize("own", [False, True])
def test_an_optimizer_tells_of_its_defaults_unless_its_client_has_the_rules(daemon, capsys, own):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import paramd.torch

    model = torch.nn.Linear(2, 1)
    if own:
        opt = paramd.torch.Optimizer(model, "kron", client=paramd.Client(daemon.url, "own-client", rules="* sgd lr=1"))
    else:
        opt = paramd.torch.Optimizer(model, "kron", daemon.url, job="no-client")
    assert capsys.readouterr().err == ""
    opt.join()
    assert capsys.readouterr().err.count("paramd: kron uses ") == (not own)
    opt.close()


# ---- dicts ----

@dataclasses.dataclass
class Decay:
    """A schedule."""

    peak: float

    def __call__(self, step):
        return self.peak / (step + 1)


def test_a_schedule_may_be_an_object_of_a_dataclass():
    assert Hypers("sgd", {"lr": Decay(0.5)}).changes(1) == {"lr": "0.25"}


@dataclasses.dataclass
class AdamGraftingConfig:
    """As upstream's."""

    beta2: float = 0.999
    epsilon: float = 1e-8


class Dim(enum.Enum):
    """As upstream's FactorDim."""

    ROW = 1


@faces
@pytest.mark.parametrize("given", [{"type": "adam", "beta2": 0.5}, {"type": "Adam", "beta2": 0.5},
                                   AdamGraftingConfig(beta2=0.5)])
def test_a_graft_is_a_dict_or_an_object_of_upstream_s_class(rule, given):
    found = words(rule("shampoo", {"grafting_config": given}))
    assert (found["grafting_config"], found["grafting_config.beta2"]) == ("Adam", "0.5")


@dataclasses.dataclass
class AdamPreconditionerConfig:
    """As upstream's of 2026."""

    beta2: float = 0.999
    epsilon: float = 1e-10


@faces
def test_classes_of_2026_are_objects_or_words(rule):
    found = words(rule("shampoo", {"semantics": 2026, "grafting_config": AdamPreconditionerConfig(beta2=0.5),
                                   "preconditioner_config": "RootInvKLShampoo"}))
    assert (found["semantics"], found["grafting_config"]) == ("2026", "Adam")
    assert found["preconditioner_config"] == "RootInvKLShampoo"


@faces
@pytest.mark.parametrize("kind", ["EigenvalueCorrectedShampoo", "SignDescent", "Adam"])
def test_a_class_whose_steps_have_their_own_length_gets_no_graft_from_the_preset(rule, kind):
    given = {"semantics": "2026", "preconditioner_config": kind}
    assert words(rule("shampoo", given))["grafting_config"] == "none"
    if kind != "Adam":
        assert words(rule("shampoo", {**given, "grafting_config": "SGD"}))["grafting_config"] == "SGD"


@faces
def test_exponents_are_a_dict_by_order_and_dimension(rule):
    found = words(rule("shampoo", {"semantics": "2026", "inverse_exponent_override": {1: 0.5, 2: {0: 0.4, 1: 0}},
                                   "preconditioner_config": "EigenvalueCorrectedShampoo",
                                   "ignored_basis_change_dims": {1: 0, 3: [0, 2]}}))
    assert found["inverse_exponent_override"] == "[1:0.5,2:[0:0.4,1:0]]"
    assert found["ignored_basis_change_dims"] == "[1:0,3:(0,2)]"


@faces
def test_none_is_no_graft(rule):
    assert words(rule("shampoo", {"grafting_config": None}))["grafting_config"] == "none"


@faces
def test_a_dict_needs_no_type_where_there_is_only_one(rule):
    found = words(rule("shampoo", {"precision_config": {"factor_matrix_dtype": "float64"}}))
    assert found["precision_config"] == "PrecisionConfig"
    assert found["precision_config.factor_matrix_dtype"] == "float64"


@faces
@pytest.mark.parametrize("given, text", [
    ({"grafting_config": {"type": "adam", "beta1": 0.9}}, "unknown key 'beta1'; expected type, beta2, epsilon"),
    ({"grafting_config": {"type": "adamw"}}, "expected \"type\": 'sgd' or 'adagrad' or 'rmsprop' or 'adam' in the"),
    ({"grafting_config": {"beta2": 0.9}}, "expected \"type\": 'sgd'"),
    ({"grafting_config": {"type": "adam", "beta2": 1}, "grafting_config.beta2": 1}, "beta2 is given twice"),
    ({"lr": {"peak": 1}}, "shampoo lr: expected a number or a text, got a dict"),
])
def test_a_dict_that_does_not_fit_is_refused_in_words(rule, given, text):
    with pytest.raises(INVALID, match=text):
        rule("shampoo", given)


@faces
def test_rules_by_name_are_a_dict(rule):
    found = words(rule("adafactor", {"factor_map": {"it's": ("ROW", Dim.ROW), ".*": "HEURISTIC"},
                                     "multiply_by_parameter_scale": {"bias": False, ".*": True},
                                     "logical_factor_rules": {"embed": "ROW"}}))
    assert found["factor_map"] == "['it''s':(ROW,ROW),'.*':HEURISTIC]"
    assert found["multiply_by_parameter_scale"] == "['bias':no,'.*':yes]"
    assert found["logical_factor_rules"] == "[embed:ROW]"


@faces
def test_a_list_by_the_number_of_dimensions_may_be_short(rule):
    assert words(rule("shampoo", {"inv_root_override": [0, 1, 4]}))["inv_root_override"] == "0,1,4,0,0,0,0,0,0"


@pytest.mark.filterwarnings("ignore::paramd.errors.ParamdWarning")
@pytest.mark.parametrize("optimizer, given, text", [
    ("shampoo", {"grafting_config": {"type": "rmsprop", "beta2": 0.5, "epsilon": 0.25}},
     "grafting_config=RMSprop(beta2=0.5,epsilon=0.25)"),
    ("adafactor", {"learning_rate": 0.5, "factor_map": {"w": ("ROW", "COLUMN")}},
     "learning_rate=0.5 factor_map=['w':(ROW,COLUMN)]"),
])
def test_a_dict_takes_the_steps_of_the_text_bit_for_bit(daemon, job, optimizer, given, text):
    numpy = pytest.importorskip("numpy")
    found = []
    for name, rule in (("dict", rows.rule("*", optimizer, given)), ("text", f"* {optimizer} {text}")):
        weights = {"w": numpy.ones((3, 2), numpy.float32)}
        with paramd.Client(daemon.url, f"{job[:30]}-{optimizer}-{name}", rules=rule) as client:
            client.declare(weights)
            client.init(weights)
            client.push_pull({"w": numpy.arange(6, dtype=numpy.float32).reshape(3, 2)}, weights).wait()
        found.append(weights["w"].copy())
    assert (found[0] == found[1]).all() and (found[0] != 1).any()

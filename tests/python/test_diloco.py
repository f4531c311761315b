"""The arguments of DiLoCo: fragments, the plan of synchronizations, and the outer optimizer's rule."""
from __future__ import annotations

import warnings

import pytest

import paramd
from paramd.fragments import MOST, split
from paramd.outer_plan import job_options, outer_of, plan_of

MODEL = [("embed.weight", 100), ("layers.0.weight", 40), ("layers.0.bias", 10), ("layers.1.weight", 40),
         ("layers.1.bias", 10), ("head.weight", 100)]
REFUSED = paramd.InvalidArgument


def sizes(numbers):
    """The elements of each fragment."""
    found = [0] * (max(numbers.values()) + 1)
    for name, size in MODEL:
        found[numbers[name]] += size
    return found


# ---- fragments ----

def test_one_fragment_has_all_parameters():
    assert set(split(MODEL, 1).values()) == {0}


def test_fragments_are_runs_of_whole_modules_of_about_equal_size():
    assert sizes(split(MODEL, 3)) == [100, 100, 100]
    assert sizes(split(MODEL, 2)) == [150, 150]
    assert list(split(MODEL, 4).values()) == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("fragments", range(1, 5))
def test_numbers_of_fragments_rise_by_one_along_the_model(fragments):
    numbers = list(split(MODEL, fragments).values())
    assert numbers[0] == 0 and numbers[-1] == fragments - 1
    assert all(b - a in (0, 1) for a, b in zip(numbers, numbers[1:]))


def test_each_module_with_parameters_can_be_a_fragment():
    assert list(split(MODEL, "each").values()) == [0, 1, 1, 2, 2, 3]


def test_lists_name_parameters_and_modules():
    assert split(MODEL, [["layers", "embed.weight"], ["head"]]) == {
        "embed.weight": 0, "layers.0.weight": 0, "layers.0.bias": 0, "layers.1.weight": 0, "layers.1.bias": 0,
        "head.weight": 1}


def test_leaves_of_pytrees_have_modules_in_front_of_the_last_slash():
    assert split([("a/kernel", 4), ("a/bias", 1), ("b/kernel", 4)], "each", "/") == {"a/kernel": 0, "a/bias": 0,
                                                                                    "b/kernel": 1}


@pytest.mark.parametrize(("fragments", "text"), [
    (0, "expected 1 to 4, since so many modules have parameters, got 0"),
    (5, "expected 1 to 4, .* got 5"),
    ("all", 'expected a number from 1 on, "each", or lists of names'),
    (True, 'expected a number from 1 on'),
    ([["embed"], ["layers"]], "head.weight is in no list"),
    ([["embed", "layers"], ["head", "layers.0"]], "layers.0.weight is in two places"),
    ([["embed", "layers", "head"], ["neck"]], "'neck' is no parameter that is trained, and no module"),
    ([["embed", "layers", "head"], []], "list 1 is empty"),
])
def test_other_fragments_are_refused(fragments, text):
    with pytest.raises(REFUSED, match=text):
        split(MODEL, fragments)


def test_a_model_of_very_many_modules_needs_a_number_of_fragments():
    with pytest.raises(REFUSED, match=f"at most {MOST}, got {MOST + 1}: give a number"):
        split([(f"m{i}.weight", 1) for i in range(MOST + 1)], "each")


# ---- the plan ----

def plan(sync_every=100, delay=0, alpha=0.0, late="carry", quantize=None, weight=None):
    return plan_of(sync_every, delay, alpha, late, quantize, False, weight)


@pytest.mark.parametrize(("changes", "text"), [
    ({"sync_every": 0}, "sync_every: expected a number of inner steps from 1 on, got 0"),
    ({"sync_every": 2.5}, "sync_every: expected a number of inner steps"),
    ({"delay": -1}, "fragment_sync_delay: expected a number of inner steps from 0 on, got -1"),
    ({"alpha": 1.5}, "fragment_update_alpha: expected 0 .* to 1 .*got 1.5"),
    ({"alpha": float("nan")}, "fragment_update_alpha: expected 0"),
    ({"late": "keep"}, 'late: expected "carry" or "drop"'),
    ({"quantize": "int2"}, 'quantize: expected None, "int8" or "int4"'),
    ({"weight": "bytes"}, 'weight: expected None .* or "tokens"'),
])
def test_values_out_of_their_range_are_refused(changes, text):
    with pytest.raises(REFUSED, match=text):
        plan(**changes)


def test_sync_every_is_a_multiple_of_the_fragments():
    plan(100).check_fragments(4)
    with pytest.raises(REFUSED, match="multiple of the 3 fragments, got 100: take 99 or 102, or another number"):
        plan(100).check_fragments(3)
    with pytest.raises(REFUSED, match="multiple of the 3 fragments, got 2: take 3,"):
        plan(2).check_fragments(3)


def test_an_answer_is_taken_before_the_next_fragment_is_sent():
    plan(100, delay=24).check_fragments(4)
    with pytest.raises(REFUSED, match=r"less than sync_every / fragments = 100 / 4 = 25 inner steps, got 25"):
        plan(100, delay=25).check_fragments(4)


# ---- the outer optimizer ----

def rule(outer="sgd", lr=0.7, momentum=0.9, nesterov=True):
    (found,) = outer_of(outer, lr, momentum, nesterov).rules
    return found.split()


def test_the_rule_has_the_arguments_that_the_optimizer_knows():
    assert rule() == ["*", "sgd", "lr=0.7", "momentum=0.9", "nesterov=yes"]
    assert rule(lr=1, momentum=0) == ["*", "sgd", "lr=1.0", "momentum=0.0", "nesterov=no"]
    assert rule("delayed_nesterov period=4") == ["*", "delayed_nesterov", "lr=0.7", "momentum=0.9", "period=4"]
    assert rule("adamw", lr=1e-3) == ["*", "adamw", "lr=0.001"]
    assert "learning_rate=0.5" in rule("kron", lr=0.5)


def test_what_stands_behind_the_optimizer_wins():
    assert rule("sgd lr=0.25 momentum=0.5") == ["*", "sgd", "lr=0.25", "momentum=0.5", "nesterov=yes"]


def test_whole_rules_are_taken_as_they_are():
    assert outer_of("*.bias sgd lr=1\n* sgd lr=0.5 momentum=0.9", 0.7, 0.9, True).rules == [
        "*.bias sgd lr=1", "* sgd lr=0.5 momentum=0.9"]


@pytest.mark.parametrize("outer", ["", "newton", "* newton lr=1", "sgd 0.7", "sgd speed=1", None])
def test_what_is_no_optimizer_of_the_server_is_refused(outer):
    with pytest.raises(REFUSED):
        outer_of(outer, 0.7, 0.9, True)


def test_negative_rates_are_refused():
    with pytest.raises(REFUSED, match="lr, momentum: expected numbers from 0 on, got -1"):
        outer_of("sgd", -1, 0.9, True)


# ---- the job ----

def options(outer="sgd", lr=0.7, momentum=0.9, given=None, rules=None, **changes):
    return job_options(plan(**changes), outer_of(outer, lr, momentum, True), given or {}, rules or {})


def test_fragments_do_not_skip_steps_together_and_tokens_weigh():
    assert set(options()) == {"aggregate=mean", "nonfinite_scope=parameter"}
    assert set(options(weight="tokens")) == {"aggregate=weighted_mean", "nonfinite_scope=parameter"}
    assert set(options(given={"aggregate": "median"})) == {"aggregate=median", "nonfinite_scope=parameter"}


def test_options_that_contradict_are_refused():
    with pytest.raises(REFUSED, match="needs nonfinite_scope=parameter, got job: leave it out"):
        options(given={"nonfinite_scope": "job"})
    with pytest.raises(REFUSED, match="needs aggregate=weighted_mean, got median: leave it out, or weight"):
        options(weight="tokens", given={"aggregate": "median"})


@pytest.mark.parametrize(("values", "text"), [
    ({"sync_every": 4}, "sync_every=4 with momentum=0.9 .* lr=1, momentum=0"),
    ({"sync_every": 3, "outer": "sgd momentum=0.8"}, "sync_every=3 with momentum=0.8"),
    ({"rules": {"quorum": 1}}, "quorum=1 with lr=0.7"),
])
def test_values_that_do_not_go_together_are_told(values, text):
    with pytest.warns(paramd.ParamdWarning, match=text):
        options(**values)


@pytest.mark.parametrize("values", [{"sync_every": 10}, {"sync_every": 4, "momentum": 0.5}, {"rules": {"quorum": 2}},
                                    {"rules": {"quorum": 1}, "lr": 0.3},
                                    {"rules": {"quorum": 1}, "outer": "delayed_nesterov period=4"}])
def test_others_are_not(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options(**values)

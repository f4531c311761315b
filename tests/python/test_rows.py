"""The optimizers' hyperparameters come from the table in C."""
from __future__ import annotations

import json
import os
import subprocess

import pytest

from paramd import NotFound, rows

BIN = os.environ["PARAMD_BIN"]


def test_the_table_is_the_one_that_paramctl_prints():
    printed = json.loads(subprocess.run([BIN + "/paramctl", "optimizers", "--json"], check=True,
                                        stdout=subprocess.PIPE).stdout)["optimizers"]
    assert rows.names() == [row["name"] for row in printed]
    for row in printed:
        flat = [(hyper.name + (f"[{k}]" if hyper.length else ""), hyper.per_step)
                for hyper in rows.hypers(row["name"]).values() for k in range(max(hyper.length, 1))]
        assert flat == [(hyper["name"], hyper["per_step"]) for hyper in row["hypers"]]


def test_defaults_have_the_types_of_python():
    adamw = rows.defaults("adamw")
    assert (adamw["lr"], adamw["betas"], adamw["eps"]) == (1e-3, (0.9, 0.999), 1e-8)
    assert adamw["amsgrad"] is False
    assert rows.defaults("shampoo")["precondition_frequency"] == 1


def test_it_is_known_what_may_change_with_a_push():
    shampoo = rows.hypers("shampoo")
    assert shampoo["lr"].per_step and not shampoo["max_preconditioner_dim"].per_step


def test_an_unknown_optimizer_is_named_with_those_that_there_are():
    with pytest.raises(NotFound, match="there is no optimizer nosuch; there are: sgd, adam"):
        rows.hypers("nosuch")


def test_a_rule_is_written_as_the_library_reads_it():
    assert rows.rule("*.bias", "adamw", {"lr": 0.1, "betas": (0.5, 0.25), "amsgrad": True}) == \
        "*.bias adamw lr=0.1 betas=0.5,0.25 amsgrad=yes"

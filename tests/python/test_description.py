"""The description that an index shows of the package is its README, with links that work outside of the sources."""
from __future__ import annotations

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
SOURCE = re.search(r'^Source = "(.*)"', PROJECT, re.M)[1]


@pytest.fixture
def described(monkeypatch):
    """The description, as the build makes it."""
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("wheel_description", ROOT / "deploy/wheel_description.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dynamic_metadata({}, {"urls": {"Source": SOURCE}})["readme"]["text"]


def test_every_link_leads_to_a_file_of_the_sources(described):
    links = re.findall(r"\]\(([^)\s]+)\)", described)
    assert len(links) > 5
    for link in links:
        assert link.startswith(SOURCE), link
        assert (ROOT / link[len(SOURCE):].partition("#")[0]).is_file(), link


def test_the_addresses_of_the_project_lead_to_files_of_the_sources():
    paths = re.findall(rf'^\w+ = "{re.escape(SOURCE)}(.+)"', PROJECT, re.M)
    assert paths
    for path in paths:
        assert (ROOT / path).is_file(), path


def test_nothing_but_links_differs_from_the_readme(described):
    readme = (ROOT / "client/python/README.md").read_text(encoding="utf-8")
    assert re.sub(r"\]\(.*?\)", "]", described) == re.sub(r"\]\(.*?\)", "]", readme)

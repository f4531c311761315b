"""paramctl finds local daemons, and shows their dashboard."""
from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import tempfile
import termios
import urllib.request

import pytest
from test_local import JOIN, end, first_line, room, start  # noqa: F401

import paramd
from conftest import BIN, await_that

WORK = JOIN + """
import numpy, time
weights = {"w": numpy.ones(3, numpy.float32)}
client.declare(weights)
client.init(weights)
for step in range(4):
    client.push_pull(weights, weights).wait()
print("done", flush=True)
time.sleep(600)
"""


def control(*arguments, check=True):
    return subprocess.run([BIN + "/paramctl", *arguments], check=check, capture_output=True, text=True)


@pytest.fixture
def run(room):  # noqa: F811
    """A run with the name mnist, whose job has taken four steps."""
    worker = start(WORK, TORCHELASTIC_RUN_ID="mnist", WORLD_SIZE="1", RANK="0")
    url = first_line(worker)
    assert worker.stdout.readline() == "done\n"
    yield url
    end(worker)


def listed():
    return json.loads(control("daemons", "--json").stdout)["daemons"]


def test_daemons_are_listed_with_jobs_and_steps(run, room):  # noqa: F811
    [daemon] = listed()
    assert daemon["url"] == run and daemon["name"].startswith("mnist-") and daemon["log"] == run[7:-5] + ".log"
    assert [job["step"] for job in daemon["jobs"]] == [4]
    with paramd.local(name="mine") as own:
        assert [one["pid"] for one in listed()] == [own.pid, daemon["pid"]]             # in the order of the names
        title, first, second = control("daemons", "-o", "wide").stdout.splitlines()
        assert title.split() == ["NAME", "PID", "UP", "JOBS", "ADDRESS"]
        assert re.match(rf"mine-\w{{8}} +{own.pid} .* - +{re.escape(own.url)}$", first)
        assert re.match(rf"mnist-\w{{8}} +{daemon['pid']} .* {daemon['jobs'][0]['name']} 4 +{re.escape(run)}$", second)
    assert [one["pid"] for one in listed()] == [daemon["pid"]]


def test_a_narrow_terminal_shows_the_names_that_s_takes(room):  # noqa: F811
    with paramd.local(name="process-with-a-long-name") as own:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 70))
        subprocess.run([BIN + "/paramctl", "daemons"], check=True, stdout=theirs)
        os.close(theirs)
        lines = os.read(ours, 1 << 16).decode().splitlines()
        os.close(ours)
        assert "\u2026" in lines[1] and len(lines[1]) <= 70
        name = lines[1].split()[0]
        assert own.url == "unix://" + os.path.join(os.path.dirname(own.url[7:]), name + ".sock")


def test_a_folder_that_others_may_read_is_not_looked_into(run):
    os.chmod(os.path.dirname(run[7:]), 0o750)
    assert control("daemons").stdout == "no local daemons\n"
    os.chmod(os.path.dirname(run[7:]), 0o700)


def test_a_name_stands_for_the_address(run):
    [daemon] = listed()
    for name in (daemon["name"], "mnist"):
        assert json.loads(control("-s", name, "jobs", "-j").stdout)["jobs"][0]["step_least"] == 4
        assert "optimizers" in control("optimizers", "-s", name, "-j").stdout     # a program of its own
    missing = control("-s", "mnis", "jobs", check=False)
    assert missing.returncode == 3 and "no local daemon has this name either: `paramctl daemons`" in missing.stderr


def test_several_daemons_of_a_name_are_told_apart(run):
    with paramd.local(name="a/b"), paramd.local(name="a?b"):            # both become a_b, with another hash
        names = [daemon["name"] for daemon in listed() if daemon["name"].startswith("a_b")]
        wrong = control("-s", "a_b", "jobs", check=False)
        assert wrong.returncode == 2 and f"choose one with -s NAME, of {', '.join(names)}" in wrong.stderr
        assert control("-s", names[1], "jobs").stdout == "no jobs\n"


def test_the_folder_is_the_one_of_python(room, monkeypatch, tmp_path):  # noqa: F811
    deep = tmp_path / ("x" * 60)
    folders = ((room, "/tmp"), ("", room + "/"), ("relative", room), (room, str(deep)), ("", str(deep)))
    for runtime, temporary in folders:
        deep.mkdir(exist_ok=True)
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("TMPDIR", temporary)
        monkeypatch.setattr(tempfile, "tempdir", None)
        try:
            daemon = paramd.local(name="here")
        except paramd.InvalidArgument:          # the path is too long for a socket
            continue
        with daemon:
            assert daemon.url in [one["url"] for one in listed()]


@pytest.fixture
def served(run):
    """`paramctl dashboard` of the only local daemon, and the address that it prints."""
    process = subprocess.Popen([BIN + "/paramctl", "dashboard", "--json"], stdout=subprocess.PIPE, text=True)
    yield process, json.loads(process.stdout.readline())["url"]
    process.kill()
    process.communicate()


def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def test_the_dashboard_of_a_local_daemon_is_served_here(served):
    _, url = served
    assert url.startswith("http://127.0.0.1:") and "<!doctype html>" in get(url)
    await_that(lambda: [job["step_least"] for job in json.loads(get(url + "jobs.json"))["jobs"]] == [4])
    assert "paramd_job_step" in get(url + "metrics")
    for _ in range(40):                                     # more connections than there are places, one after another
        assert get(url + "healthz")


def test_the_dashboard_ends_with_its_daemon(served, run):
    process, _ = served
    control("-s", run, "shutdown")
    await_that(lambda: process.poll() is not None)
    assert process.returncode == 0


def test_a_dashboard_of_no_local_daemon_is_refused_in_words(room):  # noqa: F811
    assert "no local daemon (`paramctl daemons` lists" in control("dashboard", check=False).stderr
    other = control("-s", "tcp://127.0.0.1:1", "dashboard", check=False)
    assert other.returncode == 1 and "a daemon with http.listen serves its dashboard there" in other.stderr


def test_a_local_daemon_serves_its_dashboard_where_its_user_says_too(room, monkeypatch):  # noqa: F811
    monkeypatch.setenv("PARAMD_HTTP_LISTEN", "127.0.0.1:0")
    with paramd.local() as daemon, open(daemon.log) as log:
        found = re.findall(r"HTTP.*?((?:unix|tcp|http)://\S+|127\.0\.0\.1:\d+)", log.read())
        assert any(address.endswith(".http") for address in found) and any("127.0.0.1" in address for address in found)

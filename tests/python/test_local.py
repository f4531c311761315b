"""Tests the local daemon: who starts it, who finds it, what it gets, and when it ends."""
from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

import paramd
from conftest import await_that
from paramd import local_daemon, run_folder, run_id

IDLE = "2s"                             # long enough for a worker on a busy machine to connect

# Workers are programs of their own. They print a line, then do what the test needs.
JOIN = """
import os, sys, paramd
client = paramd.Client(rank=int(os.environ.get("RANK", "0")), world_size=int(os.environ.get("WORLD_SIZE", "1")))
print(client.url, flush=True)
"""
SLEEP = JOIN + "import time\ntime.sleep(600)\n"
LEAVE = JOIN + "sys.stdin.read()\nclient.leave()\nclient.close()\n"
FIND = "from paramd import local_daemon\nprint(local_daemon.default_url(2), flush=True)\n"


@pytest.fixture
def room(monkeypatch):
    """A folder for local daemons, whose path is short enough for sockets. Daemons that are left in it are killed."""
    path = tempfile.mkdtemp(prefix="pd-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", path)
    monkeypatch.setenv("PARAMD_IDLE_EXIT", IDLE)
    for name in ("PARAMD_URL", "PARAMD_JOB", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield path
    for pid in daemons(path):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(path)


def field(pid, name):
    """Returns a file of /proc about a process; nothing if it has ended."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def daemons(part):
    """Returns the processes of daemons whose command line has a text."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit()
            and b"--listen=unix://" in field(pid, "cmdline") and part.encode() in field(pid, "cmdline")]


def start(program, *, own_group=False, **variables):
    """Starts a worker, with environment variables besides those of the test."""
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, **variables},
                            start_new_session=own_group)


def first_line(worker):
    line = worker.stdout.readline().strip()
    assert line.startswith("unix://"), worker.communicate()
    return line


def end(worker):
    worker.kill()
    worker.communicate()


def log_of(url):
    with open(url[len("unix://"):].replace(".sock", ".log")) as file:
        return file.read()


def has_ended(url):
    return not daemons(url) and not os.path.exists(url[len("unix://"):])


# ---- one daemon for a run ----

def test_ranks_that_start_at_once_start_one_daemon_and_all_find_it(room):
    workers = [start(SLEEP, RANK=str(rank), WORLD_SIZE="4", TORCHELASTIC_RUN_ID="race") for rank in range(4)]
    urls = {first_line(worker) for worker in workers}
    assert len(urls) == 1
    assert len(daemons(room)) == 1
    for worker in workers:
        worker.kill()
    said = [worker.communicate()[1] for worker in workers]
    assert sum(text.count("started a daemon") for text in said) == 1


def test_ranks_of_one_launcher_agree_without_an_id(room):
    """The launcher is this process; a shell stands between it and the second rank."""
    first = start(FIND, RANK="0", WORLD_SIZE="2")
    second = subprocess.run(["/bin/sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", FIND],
                            env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"}, capture_output=True, text=True,
                            check=True)
    assert first_line(first) == second.stdout.strip()
    end(first)


RANK_OF_TORCHRUN = """
import numpy, paramd
weights = {"w": numpy.zeros(10, numpy.float32)}
with paramd.Client(rules="* sgd lr=1") as client:
    client.declare(weights)
    client.init(weights)
    client.push_pull({"w": numpy.full(10, 2 * client.rank, numpy.float32)}, weights).wait()
assert (weights["w"] == -1).all(), weights
print(client.url, flush=True)
"""


def test_ranks_of_torchrun_train_with_one_daemon(room, tmp_path):
    pytest.importorskip("torch")
    program = tmp_path / "rank.py"
    program.write_text(RANK_OF_TORCHRUN)
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(program)],
                          capture_output=True, text=True, check=False)
    urls = re.findall(r"unix://\S+?\.sock", done.stdout)       # two processes write to one pipe: lines may join
    assert len(urls) == 2 and urls[0] == urls[1], done
    assert done.stderr.count("started a daemon") == 1


def test_under_max_restarts_the_daemon_waits_longer(monkeypatch):
    assert local_daemon._idle_seconds() == local_daemon.IDLE_SECONDS
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "0")
    assert local_daemon._idle_seconds() == local_daemon.IDLE_SECONDS
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    assert local_daemon._idle_seconds() == local_daemon.RESTART_SECONDS


def test_runs_of_one_process_have_daemons_of_their_own(room):
    workers = [start(SLEEP), start(SLEEP)]
    assert len({first_line(worker) for worker in workers}) == 2
    for worker in workers:
        end(worker)


def test_torchruns_default_id_is_no_id(room, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert run_id.run_id().startswith(f"process-{run_id.launcher().pid}-")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "mine")
    assert run_id.run_id() == "mine"


# A rank that prints its URL, then starts the ranks of an inner run and prints theirs, or their errors.
OUTER = """
import os, subprocess, sys
from paramd import local_daemon
print(local_daemon.default_url(), flush=True)
ranks = os.environ.pop("INNER_RANKS")
inner = {key[6:]: os.environ.pop(key) for key in list(os.environ) if key.startswith("INNER_")}
for rank in range(int(ranks)):
    done = subprocess.run([sys.executable, "-c", "from paramd import local_daemon\\nprint(local_daemon.default_url())"],
                          env={**os.environ, "RANK": str(rank), "WORLD_SIZE": ranks, **inner}, capture_output=True,
                          text=True)
    print(done.stdout.strip() or done.stderr.strip().splitlines()[-1], flush=True)
"""


def urls_of_outer_ranks(**variables):
    """Starts two ranks of an outer run, with inner runs. Returns what each has printed: its URL, those inside."""
    outer = [start(OUTER, RANK=str(rank), WORLD_SIZE="2", **variables) for rank in range(2)]
    printed = [worker.communicate() for worker in outer]
    assert all(worker.returncode == 0 for worker in outer), printed
    return [out.splitlines() for out, _ in printed]


@pytest.mark.parametrize("given", [{}, {"LOCAL_WORLD_SIZE": "2"}, {"MASTER_PORT": "1", "INNER_MASTER_PORT": "2"}])
def test_ranks_of_ranks_have_a_daemon_of_their_own(room, given):
    inner = "2" if "MASTER_PORT" in given else "3"
    (outer, *first), (same, *second) = urls_of_outer_ranks(INNER_RANKS=inner, **given)
    assert outer == same and len({outer, *first, *second}) == 3
    assert len(first) == len(second) == int(inner) and len(set(first)) == len(set(second)) == 1


@pytest.mark.parametrize(("inner", "given", "why"), [
    ("2", {}, "as many ranks"),
    ("3", {"TORCHELASTIC_RUN_ID": "one"}, "the same id one"),
])
def test_ranks_of_ranks_that_cannot_be_told_apart_are_refused_until_they_have_a_name(room, inner, given, why):
    words = rf"FailedPrecondition: rank 1 of {inner} was started by process \d+, which is rank 0 of 2 of another run " \
            rf"that has {why}.*set PARAMD_JOB"
    assert re.search(words, urls_of_outer_ranks(INNER_RANKS=inner, **given)[0][2])
    outer, *named = urls_of_outer_ranks(INNER_RANKS=inner, INNER_PARAMD_JOB="inner", **given)[0]
    assert len(set(named)) == 1 and (outer in named) == bool(given)         # an id names the daemon, whatever the job


def test_a_launcher_that_was_given_a_rank_of_nodes_starts_one_run(room):
    """Operators of clusters give RANK to a container, in which torchrun starts the ranks."""
    [outer, *ranks] = start_and_read(OUTER, RANK="0", WORLD_SIZE="1", INNER_RANKS="2",
                                     INNER_TORCHELASTIC_RUN_ID="two").splitlines()
    assert len(set(ranks)) == 1 and ranks[0] != outer and "/two-" in ranks[0]


def start_and_read(program, **variables):
    worker = start(program, **variables)
    out, said = worker.communicate()
    assert worker.returncode == 0, said
    return out


def test_a_run_on_several_machines_is_refused_in_words(room, monkeypatch):
    for name, number in {"RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, number)
    with pytest.raises(paramd.FailedPrecondition, match=r"8 ranks, of which 4 are on this machine.*PARAMD_URL="):
        local_daemon.default_url()
    assert not daemons(room)


# ---- its end ----

def test_it_ends_after_its_last_worker_has_left(room):
    first = start(LEAVE, RANK="0", WORLD_SIZE="2", PARAMD_JOB="two")
    last = start(LEAVE, RANK="1", WORLD_SIZE="2", PARAMD_JOB="two")
    url = first_line(first)
    assert first_line(last) == url
    first.communicate("")
    assert daemons(url)
    last.communicate("")
    await_that(lambda: has_ended(url))
    assert "no worker was connected for 2.0 s" in log_of(url)


def test_a_killed_worker_does_not_leave_it_behind(room):
    worker = start(SLEEP)
    url = first_line(worker)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    await_that(lambda: has_ended(url))
    assert log_of(url).rstrip().endswith("stopped")
    worker.communicate()


def test_a_daemon_whose_starter_dies_before_it_connects_ends_too(room):
    worker = start(FIND)
    url = first_line(worker)
    worker.communicate()
    await_that(lambda: has_ended(url))


def test_ctrl_c_reaches_the_workers_and_leaves_the_daemon_to_drain(room):
    worker = start(SLEEP, own_group=True)
    url = first_line(worker)
    [daemon] = daemons(url)
    assert os.getsid(daemon) != os.getsid(worker.pid)
    os.killpg(worker.pid, signal.SIGINT)
    assert "KeyboardInterrupt" in worker.communicate()[1]
    await_that(lambda: has_ended(url))
    log = log_of(url)
    assert "Interrupt" not in log
    assert "draining" in log and log.rstrip().endswith("stopped")


def test_it_is_no_child_of_the_worker_that_has_started_it(room):
    worker = start(SLEEP)
    [daemon] = daemons(first_line(worker))
    assert int(field(daemon, "stat").rsplit(b")", 1)[1].split()[1]) != worker.pid
    assert not field(worker.pid, f"task/{worker.pid}/children").split()
    end(worker)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_has_found_a_daemon_in_its_last_moment_starts_another(room, monkeypatch, ending):
    look, ended = local_daemon.default_url, []

    def look_too_early(*ranks):
        """Finds the daemon, which ends before the worker can connect: the first time."""
        url = look(*ranks)
        if not ended:
            ended.extend(daemons(url))
            os.kill(ended[0], ending)
            await_that(lambda: not daemons(url))
        return url

    monkeypatch.setattr(local_daemon, "default_url", look_too_early)
    worker = start(FIND, PARAMD_JOB="late")
    url = first_line(worker)
    monkeypatch.setenv("PARAMD_JOB", "late")
    monkeypatch.setenv("PARAMD_IDLE_EXIT", "60s")
    with paramd.Client(deadline=30) as client:
        assert client.url == url and len(ended) == 1 and daemons(url) not in ([], ended)
    worker.communicate()


# ---- what daemons leave behind ----

def test_a_socket_of_a_killed_daemon_is_replaced(room):
    worker = start(SLEEP, PARAMD_JOB="again")
    url = first_line(worker)
    [daemon] = daemons(url)
    os.kill(daemon, signal.SIGKILL)
    end(worker)
    await_that(lambda: not daemons(url))
    assert os.path.exists(url[len("unix://"):])
    worker = start(SLEEP, PARAMD_JOB="again")
    assert first_line(worker) == url
    assert daemons(url) and daemons(url) != [daemon]
    end(worker)


def test_sockets_locks_and_old_logs_of_dead_runs_are_swept(room):
    folder = run_folder.folder()
    for name in ("dead.lock", "dead.log", "recent.log", "living.lock"):
        open(f"{folder}/{name}", "w").close()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{folder}/dead.sock")
    os.utime(f"{folder}/dead.log", (0, 0))
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(f"{folder}/living.sock")
        living.listen()
        with run_folder.locked(f"{folder}/starting.lock", 1):
            run_folder.sweep(folder)
            assert sorted(os.listdir(folder)) == ["living.lock", "living.sock", "recent.log", "starting.lock"]


def test_a_lock_that_was_removed_while_waiting_is_taken_anew(room):
    path = f"{run_folder.folder()}/run.lock"
    with run_folder.locked(path, 1):
        os.unlink(path)
        with run_folder.locked(path, 1):
            assert run_folder._try_lock(path) is None


def test_a_start_that_never_ends_is_reported_after_a_deadline(room):
    path = f"{run_folder.folder()}/run.lock"
    words = r"another process has been starting the local daemon of this run for 0.1 s"
    with run_folder.locked(path, 1), pytest.raises(paramd.DeadlineExceeded, match=words), \
            run_folder.locked(path, 0.1):
        pytest.fail("the lock was taken twice")


# ---- whose folder it is ----

def test_a_folder_that_others_may_read_is_refused(room):
    os.mkdir(f"{room}/paramd", 0o755)
    os.chmod(f"{room}/paramd", 0o755)
    with pytest.raises(paramd.PermissionDenied, match=r"expected mode 700, found 755"):
        local_daemon.default_url()


def test_a_symbolic_link_in_place_of_the_folder_is_refused(room):
    os.mkdir(f"{room}/elsewhere", 0o700)
    os.symlink(f"{room}/elsewhere", f"{room}/paramd")
    with pytest.raises(paramd.PermissionDenied, match=r"found a symbolic link"):
        local_daemon.default_url()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(room):
    os.mkdir(f"{room}/paramd", 0o700)
    os.chown(f"{room}/paramd", 65534, -1)
    with pytest.raises(paramd.PermissionDenied, match=r"it belongs to user 65534, expected 0"):
        local_daemon.default_url()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_without_a_runtime_folder_of_ones_own_the_temporary_one_is_used(room, monkeypatch):
    os.mkdir(f"{room}/theirs")
    os.chown(f"{room}/theirs", 65534, -1)
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{room}/theirs")
    monkeypatch.setattr(tempfile, "tempdir", room)
    assert run_folder.folder() == f"{room}/paramd-0"


@pytest.mark.parametrize("runtime", [True, False])
def test_where_a_path_is_too_long_for_a_socket_a_shorter_one_is_taken(room, monkeypatch, runtime):
    """A cluster sets TMPDIR to a long path. The daemon gets it, too, and the workers train."""
    long = f"{room}/{'x' * 100}"
    os.mkdir(long, 0o700)
    monkeypatch.setattr(run_folder, "LAST", room)
    monkeypatch.setenv("TMPDIR", long)
    monkeypatch.setattr(tempfile, "tempdir", long)
    monkeypatch.setenv("XDG_RUNTIME_DIR", long if runtime else "")
    with paramd.Client() as client:
        assert client.url.startswith(f"unix://{room}/paramd-{os.geteuid()}/process-")


def test_the_longest_name_of_a_run_fits_into_the_longest_folder(room):
    assert max(len(run_folder.file_name(run)) for run in ("x" * 200, "ä" * 99, "a")) + len(".sock") \
        == run_folder.MOST_FILE_NAME


# ---- what it gets ----

def test_limits_reach_the_daemon(room):
    with paramd.local(threads=3, memory="16MiB", step_timeout="5m", log_level="debug") as daemon:
        arguments = field(daemon.pid, "cmdline").split(b"\0")
        for flag in (b"--step-threads=3", b"--pool-threads=2", b"--max-total-bytes=16MiB", b"--step-timeout=5m",
                     b"--log-level=debug"):
            assert flag in arguments
        with paramd.Client(daemon.url, "small") as client:
            with pytest.raises(paramd.ResourceExhausted, match=r"max_total_bytes"):
                client.declare([paramd.Param("w", [10_000_000])])
            client.close()


def test_the_workers_settings_of_openmp_and_libraries_do_not_reach_it(room):
    worker = start(SLEEP, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", LD_PRELOAD="", LD_LIBRARY_PATH="/nowhere",
                   PARAMD_STEP_THREADS="2")
    [daemon] = daemons(first_line(worker))
    names = {line.split(b"=")[0] for line in field(daemon, "environ").split(b"\0")}
    assert not names & {b"OMP_NUM_THREADS", b"OPENBLAS_NUM_THREADS", b"LD_PRELOAD", b"LD_LIBRARY_PATH"}
    assert b"PARAMD_STEP_THREADS" in names
    end(worker)


def test_variables_of_kubernetes_services_stop_neither_worker_nor_daemon(room):
    links = {}
    for service in ("PARAMD", "PARAMD_METRICS", "PARAMD_0"):
        links |= {f"{service}_SERVICE_HOST": "10.96.3.7", f"{service}_SERVICE_PORT_HTTP": "7072",
                  f"{service}_PORT": "tcp://10.96.3.7:7072", f"{service}_PORT_7072_TCP": "tcp://10.96.3.7:7072",
                  f"{service}_PORT_7072_TCP_ADDR": "10.96.3.7"}
    worker = start(SLEEP, **links)
    assert daemons(first_line(worker))
    end(worker)


def test_the_worker_loads_neither_blas_nor_openmp(room):
    program = SLEEP.replace("import time", "import numpy\nimport time")
    worker = start(program)
    first_line(worker)
    own = [line for line in field(worker.pid, "maps").decode().splitlines() if "numpy" not in line]
    assert any("libparamd.so" in line for line in own)
    assert not [line for line in own if "blas" in line or "gomp" in line or "gfortran" in line]
    end(worker)


def test_the_first_line_of_its_log_names_the_kernels_of_blas(room):
    with paramd.local() as daemon:
        assert "BLAS core " in log_of(daemon.url).splitlines()[0]


def test_weights_travel_in_shared_memory(room):
    numpy = pytest.importorskip("numpy")
    with paramd.local() as daemon, paramd.Client(daemon.url, "shared", rules="* sgd lr=1") as client:
        weights = {"w": numpy.ones(1 << 20, numpy.float32)}
        client.declare(weights)
        client.init(weights)
        client.push_pull({"w": numpy.ones(1 << 20, numpy.float32)}, weights).wait()
        assert not weights["w"].any()
        assert client.stats.shared_in >= 4 << 20


# ---- what goes wrong ----

def test_a_wrong_setting_is_refused_in_the_daemons_words(room):
    with pytest.raises(paramd.InvalidArgument, match=r"there is no flag --stepp-timeout: did you mean --step-timeout"):
        paramd.local(stepp_timeout="5m")
    with pytest.raises(paramd.InvalidArgument, match=r"listen is chosen by the local daemon itself"):
        paramd.local(listen=":7070")
    assert not daemons(room)


def test_a_daemon_of_the_run_that_does_not_start_says_why(room, monkeypatch):
    monkeypatch.setenv("PARAMD_STEP_THREADS", "many")
    with pytest.raises(paramd.Unavailable, match=r"PARAMD_STEP_THREADS: .*expected a whole number"):
        local_daemon.default_url()


@pytest.mark.parametrize("begin", [local_daemon.default_url, paramd.local])
def test_a_daemon_that_is_never_ready_is_killed_and_reported(room, monkeypatch, begin):
    with open(f"{room}/sleeper", "w") as file:
        file.write(f"#!/bin/sh\necho $$ > {room}/pid\nexec sleep 600\n")
    os.chmod(f"{room}/sleeper", 0o700)
    monkeypatch.setattr(local_daemon, "START_SECONDS", 1.0)
    monkeypatch.setattr(local_daemon._library, "program", lambda name: f"{room}/sleeper")
    with pytest.raises(paramd.DeadlineExceeded, match=r"was not ready within 1 s"):
        begin()
    with open(f"{room}/pid") as file:
        pid = int(file.read())
    await_that(lambda: not local_daemon._is_running(pid))


# ---- a daemon of one's own ----

def test_a_daemon_of_ones_own_ends_with_its_block(room):
    with paramd.local() as daemon:
        assert daemons(daemon.url) == [daemon.pid]
    assert has_ended(daemon.url)
    daemon.close()


def test_it_has_an_idle_time_only_if_one_is_asked_for(room):
    with paramd.local() as daemon:
        assert b"--idle-exit=0s" in field(daemon.pid, "cmdline").split(b"\0")
    daemon = paramd.local(idle_exit="200ms")
    await_that(lambda: has_ended(daemon.url))
    daemon.close()


def test_it_ends_with_the_process_that_has_started_it(room):
    program = "import paramd, time\nprint(paramd.local().url, flush=True)\ntime.sleep(600)\n"
    owner = start(program)
    url = first_line(owner)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    await_that(lambda: has_ended(url))
    assert "the standard input has ended" in log_of(url)


def test_a_forked_child_neither_ends_it_nor_keeps_it(room):
    daemon = paramd.local()
    child = os.fork()
    if child == 0:
        daemon.close()
        os._exit(0 if not local_daemon._open and daemons(daemon.url) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert daemons(daemon.url)
    daemon.close()
    assert has_ended(daemon.url)


def test_a_name_is_taken_once(room):
    with paramd.local(name="mine") as daemon:
        with pytest.raises(paramd.AlreadyExists, match=r"named mine runs already"):
            paramd.local(name="mine")
        assert daemons(daemon.url) == [daemon.pid]
    with paramd.local(name="mine") as again:
        assert again.url == daemon.url


def test_the_console_scripts_become_the_programs(room):
    said = subprocess.run([sys.executable, "-c", "from paramd.programs import paramd; paramd()", "--version"],
                          capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"paramd {paramd.__version__}\n")

"""Takes training steps with an installed wheel of paramd, where no server is set up. Run by wheel_try.sh."""
import importlib.metadata
import os
import shutil
import subprocess
import sys
import time

import numpy

import paramd

STEPS = 20
IN_WORKER = ("libprotobuf-c", "libxxhash")      # the bundled libraries that a worker may load


def libraries(process):
    """Returns the files with code that a process has loaded, from its memory map."""
    with open(f"/proc/{process}/maps") as file:
        fields = [line.split(None, 5) for line in file]
    return {field[5].strip() for field in fields if len(field) > 5 and ".so" in field[5]}


def train():
    """Takes steps towards zero weights. Returns the client's URL."""
    weights = {"w": numpy.full(1 << 20, 8.0, numpy.float32)}
    with paramd.Client(rules="* sgd lr=0.5") as client:
        client.declare(weights)
        client.init(weights)
        for _ in range(STEPS):
            client.push_pull({"w": weights["w"].copy()}, weights).wait()
        numpy.testing.assert_array_equal(weights["w"], numpy.float32(8 * 0.5**STEPS))
        return client.url, client.stats


def check_worker():
    """Checks that this process has loaded neither the daemon's BLAS nor its OpenMP. NumPy has a BLAS of its own."""
    ours = [path for path in libraries("self") if "numpy.libs" not in path]
    for path in ours:
        name = os.path.basename(path)
        assert "paramd.libs" not in path or name.startswith(IN_WORKER), f"{path} is in the worker"
        assert not any(part in name for part in ("blas", "gomp", "gfortran")), f"{path} is in the worker"
    assert any("libparamd.so" in path for path in ours), ours


def check_daemon(url):
    """Checks that the daemon runs on the wheel's own libraries, and has chosen its BLAS kernels."""
    log = url[len("unix://"):].replace(".sock", ".log")
    with open(log) as file:
        first = file.readline()
    assert "BLAS core" in first and "unknown" not in first, first
    daemons = [pid for pid in os.listdir("/proc") if pid.isdigit() and url in command(pid)]
    assert len(daemons) == 1, daemons
    for name in ("libopenblas", "libgomp", "libuv"):
        assert any("paramd.libs" in path and name in path for path in libraries(daemons[0])), f"{name} is another"
    print(first.strip())


def command(pid):
    """Returns the command line of a process, or nothing if it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def await_end():
    """Waits until no daemon of this folder runs. Each ends with its last worker."""
    until = time.monotonic() + 20
    while any(os.getcwd() in command(pid) for pid in os.listdir("/proc") if pid.isdigit()):
        assert time.monotonic() < until, "the daemon has not ended with its last worker"
        time.sleep(0.05)


def check_programs():
    """Runs the programs of the wheel, as a user would."""
    subprocess.run(["paramctl", "optimizers", "kron"], check=True, stdout=subprocess.DEVNULL)
    older = subprocess.run(["paramd", "--version"], check=True, capture_output=True, text=True,
                           env={**os.environ, "PARAMD_CPU": "generic"}).stdout
    assert "BLAS core Prescott" in older, older                     # the kernels are chosen when the daemon starts
    with open("model.shapes", "w") as file:
        file.write("w 512 512\n")
    subprocess.run(["paramctl", "plan", "model.shapes", "--rule", "* kron"], check=True, stdout=subprocess.DEVNULL)
    for name in ("doctor", "replay", "bench"):                      # a program of its own for each
        subprocess.run(["paramctl", name, "--help"], check=True, stdout=subprocess.DEVNULL)
    small = ["--workers", "1", "--tensors", "1", "--floats", "1000", "--rounds", "5"]
    subprocess.run(["paramctl", "bench", "net", *small], check=True, stdout=subprocess.DEVNULL)


def main():
    """Trains, and checks the worker, the daemon and the programs."""
    assert shutil.which("gcc") is None and shutil.which("cc") is None, "there is a compiler on the PATH"
    assert os.path.dirname(paramd.__file__).startswith(sys.prefix), paramd.__file__
    assert paramd.__version__ == importlib.metadata.version("paramd"), paramd.__version__
    assert "kron" in paramd.rows.names(), "the table of optimizers is not in the wheel"
    url, stats = train()
    check_worker()
    check_daemon(url)
    check_programs()
    print(f"{STEPS} steps at {url}, {stats.shared_in} bytes of weights in shared memory")
    await_end()
    print("the daemon has ended with its last worker")


if __name__ == "__main__":
    main()

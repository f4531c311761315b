"""import_s: seconds that `import paramd` takes, with Client and all that it needs but NumPy, in a fresh interpreter.

The figure is the median of RUNS interpreters.
"""
from __future__ import annotations

import statistics
import subprocess
import sys

RUNS = 21
PROGRAM = """
import sys, time
start = time.perf_counter()
import paramd
bare = time.perf_counter() - start
paramd.Client
print(time.perf_counter() - start, bare, "numpy" in sys.modules)
"""


def main() -> None:
    """Measures, and prints the figure."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, stdout=subprocess.DEVNULL)      # compiles the modules
    whole, bare = [], []
    for _ in range(RUNS):
        done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
        seconds, alone, has_numpy = done.stdout.split()
        assert has_numpy == "False", "NumPy was imported"
        whole.append(float(seconds))
        bare.append(float(alone))
    print(f"{statistics.median(whole):.3f}\tpackage alone {statistics.median(bare):.3f} s; {min(whole):.3f} to "
          f"{max(whole):.3f} s in {RUNS} interpreters")


if __name__ == "__main__":
    main()

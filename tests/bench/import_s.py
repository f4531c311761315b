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
cpu, start = time.process_time(), time.perf_counter()
import paramd
bare = time.perf_counter() - start
paramd.Client
print(time.perf_counter() - start, bare, time.process_time() - cpu, "numpy" in sys.modules)
"""


def main() -> None:
    """Measures, and prints the figure."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, stdout=subprocess.DEVNULL)      # compiles the modules
    rows = []
    for _ in range(RUNS):
        done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
        *seconds, has_numpy = done.stdout.split()
        assert has_numpy == "False", "NumPy was imported"
        rows.append([float(number) for number in seconds])
    whole, bare, cpu = (sorted(column) for column in zip(*rows, strict=True))
    print(f"{statistics.median(whole):.3f}\t{whole[0]:.3f} to {whole[-1]:.3f} s in {RUNS} interpreters, "
          f"{statistics.median(cpu):.3f} s of CPU time; `import paramd` alone {statistics.median(bare):.3f} s")


if __name__ == "__main__":
    main()

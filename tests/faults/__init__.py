"""Faults at every write: full disks, failing disks, interrupted calls, no memory, and kills.

    python -m tests.faults writes                  every fault at every operation of every scenario
    python -m tests.faults stores --examples 2000  stores of sweeps against a model in memory
    python -m tests.faults kills --number 1000     kill -9, aimed and at random, then go on
    tests/test_injected_faults.py                  a share of all three

A scenario is a command with small input. It is run once, while what it asks of the system is counted: files opened,
written, synchronised, renamed and removed, folders made, and calls of NumPy and the like that take memory for what is
written. Then it is run once for every such operation n and every fault, which meets the n-th of them. Afterwards

    what had a name keeps it, and opens, and is whole                       nothing is half written
    one sentence and exit code 1, or the whole result and exit code 0       no traceback
    no draft and no open file is left behind
    the same command, given again, has the same bits as without the fault   and does nothing twice
"""

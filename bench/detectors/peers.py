"""Reads series as lines of JSON, and prints the change points that other programs' packages report: for each
series, a list by the number of its first values that the package gets. Needs apache-otava and jumpavg."""
import itertools
import json
import sys

import jumpavg
from otava.analysis import compute_change_points


def otava(values):
    return [int(point.index) for point in compute_change_points(values)[0]]


def average_jumps(values):
    sizes = [group.stats.size for group in jumpavg.classify(values)]
    return list(itertools.accumulate(sizes))[:-1]


for line in sys.stdin:
    task = json.loads(line)
    prefixes = [task["values"][:n] for n in task["lengths"]]
    found = {"apache-otava": [otava(p) for p in prefixes], "jumpavg": [average_jumps(p) for p in prefixes]}
    print(json.dumps(found))

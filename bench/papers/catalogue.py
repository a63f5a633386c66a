"""All experiments, in the papers' order."""

from __future__ import annotations

from bench.papers.catching_up import CATCHUP
from bench.papers.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (CATCHUP,)}

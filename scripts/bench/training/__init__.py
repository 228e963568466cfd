"""Modules of scripts/bench/train.py: networks, ways to feed them, measuring and reports."""

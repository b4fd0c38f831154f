# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts a program of scripts/: start.py MODULE [ARGUMENT...].

To be run with python3 -I, so that neither the environment nor the directory
it is run in brings in modules of its own.
"""
import importlib
import signal
import sys
from pathlib import Path

# Ctrl-C while modules are still being read: just end.  Unless it is ignored.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.exit(importlib.import_module(f"ehcalab.{sys.argv[1]}").main(sys.argv[2:]))

"""The other benchmarks as modules; their files have no extension."""

import importlib.machinery
import importlib.util
import pathlib


def load(name):
    """scripts/bench/NAME as a module."""
    path = pathlib.Path(__file__).resolve().parent / name
    loader = importlib.machinery.SourceFileLoader(f"{name}_bench", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module

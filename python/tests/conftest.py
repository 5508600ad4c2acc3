"""What every test needs: JAX on the CPU, plans in a folder of their own, steps compiled once."""

import functools
import os

# Tests compile much and run little.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import gpt
import jax
import jax.numpy as jnp
import numpy
import offc
import pytest

jax.config.update("jax_platforms", "cpu")
STEPS = 20


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.setenv("OFFC_CACHE_DIR", str(tmp_path / "plans"))
    offc.clear_reports()
    yield
    offc.uninstall()
    offc.clear_reports()


def device_bytes(compiled):
    m = compiled.memory_analysis()
    return m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes + m.temp_size_in_bytes


def arguments():
    params = gpt.parameters()
    return params, jax.tree.map(jnp.zeros_like, params), gpt.tokens(), jax.random.key(2)


def compiled(**kind):
    return jax.jit(gpt.step(**kind), donate_argnums=(0, 1)).lower(*arguments()).compile()


def losses(step, steps=STEPS):
    """The bytes of the losses of some steps."""
    params, moments, batch, key = arguments()
    out = []
    for i in range(steps):
        params, moments, loss = step(params, moments, batch, jax.random.fold_in(key, i))
        out.append(numpy.asarray(loss))
    return numpy.array(out).tobytes()


@functools.cache
def plain(**kind):
    """Losses, XLA's bytes and temporaries of a step that nobody has planned."""
    step = compiled(**kind)
    return losses(step), device_bytes(step), step.memory_analysis().temp_size_in_bytes

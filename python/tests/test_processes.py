"""Several processes: every one makes the same plan, and the losses are those without."""

import os
import socket
import subprocess
import sys

PROGRAM = """
import hashlib, json, sys
import jax, jax.numpy as jnp, numpy, gpt, offc
from jax.sharding import Mesh, NamedSharding, PartitionSpec
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
number, port = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
mesh = Mesh(numpy.array(jax.devices()), ("data",))
whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
make = jax.jit(lambda: (gpt.parameters(), jax.tree.map(jnp.zeros_like, gpt.parameters())), out_shardings=whole)
batch = jax.make_array_from_callback((4, 65), split, lambda at: numpy.asarray(numpy.arange(260).reshape(4, 65) * 7 % 256, "int32")[at])

def train():
    params, moments = make()
    step = jax.jit(gpt.step(scan=True), donate_argnums=(0, 1)).lower(params, moments, batch, jax.random.key(2)).compile()
    m = step.memory_analysis()
    size = m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes + m.temp_size_in_bytes
    losses = []
    for _ in range(5):
        params, moments, loss = step(params, moments, batch, jax.random.key(2))
        losses.append(numpy.asarray(loss).tobytes().hex())
    return losses, size

plain, before = train()
offc.install(memory=before * 6 // 10, platforms="cpu")
planned, after = train()
report = offc.report()
plan = hashlib.sha256(json.dumps(report.data, sort_keys=True).encode()).hexdigest()
print(json.dumps({"same": plain == planned, "fits": report.fits and after <= before * 6 // 10, "plan": plan, "losses": planned}))
"""


def test_two_processes_make_the_same_plan_and_keep_the_losses(tmp_path):
    import json

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    started = []
    for n in range(2):
        own = {**environment, "OFFC_CACHE_DIR": str(tmp_path / str(n))}
        started.append(
            subprocess.Popen([sys.executable, "-c", PROGRAM, str(n), port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own)
        )
    try:
        done = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(process.returncode == 0 for process in started), [e for _, e in done]
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in done)
    assert first == second and first["same"] and first["fits"]

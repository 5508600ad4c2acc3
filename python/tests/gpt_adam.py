"""A GPT as people train it on GPUs: bfloat16 products, float32 weights, Adam, layers scanned; the loss comes back by example."""

import jax
import jax.numpy as jnp
from gpt import parameters
from jax.ad_checkpoint import checkpoint_name

HEADS = 8
HALF = jnp.bfloat16


def _norm(x):
    x = x.astype(jnp.float32)
    return ((x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)).astype(HALF)


def _layer(x, weights):
    qkv, projection, up, down = (w.astype(HALF) for w in weights)
    batch, length, width = x.shape
    parts = jnp.split((_norm(x) @ qkv).reshape(batch, length, 3 * HEADS, width // HEADS), 3, axis=2)
    q, k, v = (checkpoint_name(p, n) for p, n in zip(parts, ("query_proj", "key_proj", "value_proj")))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / (width // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(HALF), v).reshape(batch, length, width)
    x = x + checkpoint_name(checkpoint_name(mixed, "context") @ projection, "out_proj")
    hidden = checkpoint_name(_norm(x) @ up, "mlpwi")
    return x + checkpoint_name(jax.nn.gelu(hidden) @ down, "mlpwo")


def _loss(params, tokens, remat):
    x = params["embedding"][tokens[:, :-1]].astype(HALF)
    layer = jax.checkpoint(_layer) if remat else _layer
    weights = tuple(params[n] for n in ("qkv", "projection", "up", "down"))
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, weights)
    logs = jax.nn.log_softmax((x @ params["embedding"].T.astype(HALF)).astype(jnp.float32))
    each = -jnp.take_along_axis(logs, tokens[:, 1:, None], -1).mean((1, 2))
    return each.sum(), each


def step(remat=False):
    """``(params, (m, v), tokens) -> (params, (m, v), losses)``."""

    def run(params, moments, tokens):
        gradient, losses = jax.grad(_loss, has_aux=True)(params, tokens, remat)
        m, v = moments
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradient)
        v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, gradient)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
        return params, (m, v), losses

    return run


def shapes(count=1, make=None, **sizes):
    """Shapes of the arguments, on `count` devices sharded by rows; ``make`` gives a sharding for an axis."""
    params = jax.eval_shape(lambda: parameters(**sizes))
    tokens = jax.ShapeDtypeStruct((4 * count, 513), jnp.int32)
    if make:
        put = lambda x, axis: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=make(axis))
        params, tokens = jax.tree.map(lambda x: put(x, x.ndim - 2), params), put(tokens, 0)
    return params, (params, params), tokens

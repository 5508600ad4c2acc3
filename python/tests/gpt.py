"""A small GPT and its training step, for the tests: layers unrolled or scanned, with dropout, with gradient accumulation."""

import jax
import jax.numpy as jnp

HEADS = 4


def parameters(layers=3, width=64, vocabulary=256):
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = {
        "embedding": (vocabulary, width),
        "qkv": (layers, width, 3 * width),
        "projection": (layers, width, width),
        "up": (layers, width, 4 * width),
        "down": (layers, 4 * width, width),
    }
    return {name: 0.02 * jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items())}


def tokens(batch=4, length=65, vocabulary=256):
    return jax.random.randint(jax.random.key(1), (batch, length), 0, vocabulary)


def _norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _layer(x, weights, key):
    qkv, projection, up, down = weights
    batch, length, width = x.shape
    q, k, v = jnp.split((_norm(x) @ qkv).reshape(batch, length, 3 * HEADS, width // HEADS), 3, axis=2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(batch, length, width)
    x = x + mixed @ projection
    hidden = jax.nn.gelu(_norm(x) @ up)
    if key is not None:
        hidden = jnp.where(jax.random.bernoulli(key, 0.9, hidden.shape), hidden / 0.9, 0.0)
    return x + hidden @ down


def _loss(params, batch, key, scan):
    x = params["embedding"][batch[:, :-1]]
    weights = tuple(params[n] for n in ("qkv", "projection", "up", "down"))
    count = weights[0].shape[0]
    keys = None if key is None else jax.random.split(key, count)
    if scan:
        x, _ = jax.lax.scan(lambda x, w: (_layer(x, w[0], w[1]), None), x, (weights, keys))
    else:
        for i in range(count):
            x = _layer(x, tuple(w[i] for w in weights), None if keys is None else keys[i])
    logs = jax.nn.log_softmax(x @ params["embedding"].T)
    return -jnp.take_along_axis(logs, batch[:, 1:, None], -1).mean()


def step(scan=False, dropout=False, accumulate=1, sort=False):
    """``(params, moments, batch, key) -> (params, moments, loss)``; ``sort`` puts a custom call (TopK) on the way."""

    def run(params, moments, batch, key):
        key = key if dropout else None
        if accumulate == 1:
            loss, gradient = jax.value_and_grad(_loss)(params, batch, key, scan)
        else:
            def one(carry, part):
                loss, gradient = jax.value_and_grad(_loss)(params, part, key, scan)
                return (carry[0] + loss, jax.tree.map(jnp.add, carry[1], gradient)), None

            parts = batch.reshape(accumulate, -1, batch.shape[-1])
            zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
            (loss, gradient), _ = jax.lax.scan(one, zero, parts)
            loss, gradient = loss / accumulate, jax.tree.map(lambda g: g / accumulate, gradient)
        if sort:
            largest = jax.lax.top_k(jnp.abs(gradient["embedding"]), 8)[0][:, -1:]
            gradient = {**gradient, "embedding": jnp.clip(gradient["embedding"], -largest, largest)}
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradient)
        params = jax.tree.map(lambda p, m: p - 0.1 * m, params, moments)
        return params, moments, loss

    return run

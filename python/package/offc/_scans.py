"""Scans in a step as JAX traces it: which stacks one saves for another, and the same step with fewer of them.

JAX lets nobody put a module of his own under the shardings of a compile, so what the planner decides about a module before optimization is carried
out on the traced step: the forward scan saves what is kept, the backward scan makes the rest again from it. XLA then fuses both as it does for a policy
written by hand. Every operation that is left stands where it stood, on the same operands, so the values are the same.
"""

import re

import jax
from jax.extend import core as jex

#: What is not made again: it has effects, or runs long.
_KEPT = {"scan", "while", "cond", "custom_call", "ffi_call", "pure_callback", "io_callback", "rng_uniform", "shard_map"}
_TAG = re.compile(r"offc\.([0-9-]+)\.([0-9]+)/")
#: Calls that XLA inlines anyway.
_CALLS = {"jit", "pjit", "closed_call", "core_call", "core_closed_call"}


def opened(closed):
    """A jaxpr and its constants, whether this JAX wraps one in the other or not."""
    return getattr(closed, "jaxpr", closed), list(closed.consts)


class Parts:
    """Which inputs of a scan are constants, carry and rows."""

    def __init__(self, eqn):
        params = eqn.params
        if "num_consts" in params:
            self.consts, self.carry = params["num_consts"], params["num_carry"]
        else:
            consts, carry, _ = params["ft_in"].update(list(range(len(eqn.invars)))).unpack()
            self.consts, self.carry = len(list(consts)), len(list(carry))
        self.eqn, self.length, self.reverse, self.unroll = eqn, params["length"], params["reverse"], params["unroll"]
        self.body, self.body_consts = opened(params["jaxpr"])

    def split(self, values):
        """Constants, carry, rows of a list in the order of the inputs."""
        values = list(values)
        return values[: self.consts], values[self.consts : self.consts + self.carry], values[self.consts + self.carry :]

    @property
    def rows_out(self):
        """The variables of the body whose rows are stacked."""
        return self.body.outvars[self.carry :]

    def run(self, body, carry, xs):
        """``jax.lax.scan`` as this one runs."""
        return jax.lax.scan(body, carry, xs, length=self.length, reverse=self.reverse, unroll=self.unroll)


def bind(eqn, values, scope=None, inline=False):
    """The outputs of an equation on other values, under its own name stack and context."""
    from jax._src import source_info_util

    stack = source_info_util.current_name_stack() + eqn.source_info.name_stack
    with source_info_util.user_context(eqn.source_info.traceback, name_stack=stack), eqn.ctx.manager:
        if inline:
            name = eqn.primitive.name
            if name in _CALLS and _plain(eqn):
                body, consts = opened(eqn.params.get("jaxpr") or eqn.params["call_jaxpr"])
                return evaluate(body, consts, values, inline=True)
            if name == "scan":
                parts = Parts(eqn)
                consts, carry, xs = parts.split(values)

                def body(c, x):
                    out = evaluate(parts.body, parts.body_consts, [*consts, *c, *x], inline=True)
                    return out[: parts.carry], out[parts.carry :]

                carry, ys = parts.run(body, carry, xs)
                return [*carry, *ys]
        if scope is not None:
            with jax.named_scope(scope):
                return _bound(eqn, values)
        return _bound(eqn, values)


def _bound(eqn, values):
    params = eqn.primitive.get_bind_params(eqn.params)
    if isinstance(params, tuple):  # older JAX: functions apart
        functions, params = params
        values = [*functions, *values]
    out = eqn.primitive.bind(*values, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _plain(eqn):
    """Whether a call says nothing about shardings or layouts."""
    from jax._src.sharding_impls import UnspecifiedValue

    stated = (*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ()))
    layouts = (*eqn.params.get("in_layouts", ()), *eqn.params.get("out_layouts", ()))
    return all(isinstance(s, UnspecifiedValue) for s in stated) and all(x is None for x in layouts)


def evaluate(jaxpr, consts, args, instead=None, scope=None, want=None, inline=False):
    """Runs a jaxpr. ``instead``: for the number of an equation, a function from a reader of values to its outputs. ``scope``: names the scope of
    equation n. ``want``: variables or literals to return instead of the outputs."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom):
        return atom.val if isinstance(atom, jex.Literal) else values[atom]

    for n, eqn in enumerate(jaxpr.eqns):
        if instead and n in instead:
            out = instead[n](read)
        else:
            out = bind(eqn, [read(v) for v in eqn.invars], scope and scope(n), inline)
        values.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in (jaxpr.outvars if want is None else want)]


class Pair:
    """A scan that saves stacks and one that reads them; ``stacks`` maps an output of the one's rows to an input of the other's."""

    def __init__(self, producer, consumer, stacks):
        self.producer, self.consumer, self.stacks = producer, consumer, stacks


def pairs(jaxpr):
    """All pairs of scans with a stack between them that nothing else reads, by the numbers of their equations."""
    uses = {}
    for n, eqn in enumerate(jaxpr.eqns):
        for place, v in enumerate(eqn.invars):
            if not isinstance(v, jex.Literal):
                uses.setdefault(v, []).append((n, place))
    for v in jaxpr.outvars:
        if not isinstance(v, jex.Literal):
            uses.setdefault(v, []).append((None, None))
    scans = [n for n, eqn in enumerate(jaxpr.eqns) if eqn.primitive.name == "scan" and not eqn.effects]
    found = {}
    for producer in scans:
        made = Parts(jaxpr.eqns[producer])
        for y, var in enumerate(made.eqn.outvars[made.carry :]):
            read = uses.get(var, [])
            if len(read) != 1 or read[0][0] not in scans:
                continue
            consumer, place = read[0]
            reads = Parts(jaxpr.eqns[consumer])
            x = place - reads.consts - reads.carry
            if x >= 0 and reads.length == made.length:
                found.setdefault((producer, consumer), {})[y] = x
    return [Pair(producer, consumer, stacks) for (producer, consumer), stacks in sorted(found.items())]


class Change:
    """What becomes of a pair: ``kept`` are variables of the producer's body whose rows are saved, ``offloaded`` those of them that are saved in host
    memory; all other stacks of the pair go. ``exact``: a barrier keeps XLA from fusing what is made again into what reads it. Sums depend on
    how an operand lies in memory; with the barrier it lies as a row of a stack does."""

    def __init__(self, jaxpr, pair, kept, offloaded=(), exact=True):
        self.exact = exact
        self.made, self.reads = Parts(jaxpr.eqns[pair.producer]), Parts(jaxpr.eqns[pair.consumer])
        self.pair, self.offloaded = pair, set(offloaded)
        rows = self.made.rows_out
        stays = {y: rows[y] for y in pair.stacks if _is_var(rows[y]) and rows[y] in kept}
        #: A row is saved once, and what is in host memory is saved anew.
        self.dropped = {y: rows[y] for y in pair.stacks if y not in stays or stays[y] in self.offloaded}
        given = {v: y for y, v in stays.items() if y not in self.dropped}
        needed = [v for v in self.dropped.values() if _is_var(v)]
        self.extra, self.equations, self.given = self._closure(needed, kept, given)

    def _closure(self, needed, kept, given):
        """What has to be saved besides, and the equations that are run again, in order."""
        body = self.made.body
        maker = {v: n for n, eqn in enumerate(body.eqns) for v in eqn.outvars}
        consts, carry, xs = self.made.split(body.invars)
        free = {*consts, *xs, *body.constvars}
        extra, again, seen, todo = [], set(), set(), list(needed)
        while todo:
            v = todo.pop()
            if v in seen or v in free or v in given:
                continue
            seen.add(v)
            n = maker.get(v)
            if n is None or v in kept or _stays(body.eqns[n]):
                extra.append(v)
                continue
            again.add(n)
            todo.extend(a for a in body.eqns[n].invars if _is_var(a))
        order = {v: n for n, v in enumerate([*carry, *(v for eqn in body.eqns for v in eqn.outvars)])}
        return sorted(extra, key=order.__getitem__), sorted(again), given

    def forward(self, jaxpr_read, saved):
        """The producer, which leaves its extra stacks in ``saved``."""
        made = self.made
        consts, carry, xs = made.split([jaxpr_read(v) for v in made.eqn.invars])
        left = [y for y in range(len(made.rows_out)) if y not in self.dropped]

        def body(c, x):
            want = [*made.body.outvars[: made.carry], *(made.rows_out[y] for y in left), *self.extra]
            out = evaluate(made.body, made.body_consts, [*consts, *c, *x], want=want)
            rows = out[made.carry : made.carry + len(left)]
            extra = [_put(e, jax.memory.Space.Host) if v in self.offloaded else e for v, e in zip(self.extra, out[made.carry + len(left) :])]
            return out[: made.carry], (rows, extra)

        carry, (rows, extra) = made.run(body, carry, xs)
        saved.update(extra=extra, consts=consts, xs=xs)
        rows = dict(zip(left, rows))
        return [*carry, *(rows.get(y) for y in range(len(made.rows_out)))]

    def backward(self, jaxpr_read, saved):
        """The consumer, which makes the rows that are gone."""
        made, reads = self.made, self.reads
        gone = {self.pair.stacks[y]: v for y, v in self.dropped.items()}
        consts, carry, xs = reads.split([None if _gone(n, reads, gone) else jaxpr_read(v) for n, v in enumerate(reads.eqn.invars)])
        left = [x for x in range(len(xs)) if x not in gone]
        _, _, made_xs = made.split(made.body.invars)
        made_consts, _, _ = made.split(made.body.invars)
        needs = {a for n in self.equations for a in made.body.eqns[n].invars if _is_var(a)} | {v for v in gone.values() if _is_var(v)}
        through = [n for n, v in enumerate(made_xs) if v in needs]

        def body(c, x):
            rows, extra, again = x
            rows = dict(zip(left, rows))
            values = dict(zip([*made.body.constvars, *made_consts], [*made.body_consts, *saved["consts"]]))
            values.update((made_xs[n], a) for n, a in zip(through, again))
            values.update((v, _put(e, jax.memory.Space.Device) if v in self.offloaded else e) for v, e in zip(self.extra, extra))
            values.update((v, rows[self.pair.stacks[y]]) for v, y in self.given.items())

            def read(atom):
                return atom.val if isinstance(atom, jex.Literal) else values[atom]

            for n in self.equations:
                eqn = made.body.eqns[n]
                for v, value in zip(eqn.outvars, bind(eqn, [read(a) for a in eqn.invars]), strict=True):
                    values.setdefault(v, value)
            made_again = [read(v) for v in gone.values()]
            if self.exact:
                made_again = jax.lax.optimization_barrier(made_again)
            rows.update(zip(gone, made_again))
            out = evaluate(reads.body, reads.body_consts, [*consts, *c, *(rows[n] for n in range(len(xs)))])
            return out[: reads.carry], out[reads.carry :]

        again = [saved["xs"][n] for n in through]
        carry, ys = reads.run(body, carry, ([xs[n] for n in left], saved["extra"], again))
        return [*carry, *ys]


def _gone(n, reads, gone):
    return n - reads.consts - reads.carry in gone


def _is_var(atom):
    return not isinstance(atom, jex.Literal)


def _stays(eqn):
    return eqn.primitive.name in _KEPT or bool(eqn.effects)


def _put(value, space):
    return jax.device_put(value, space)


def sites(jaxpr, path=()):
    """Where pairs are: ``{path: (jaxpr, pairs)}``; a path is the numbers of the scans around them. A scan stands in one pair at most."""
    found, taken = [], set()
    for pair in sorted(pairs(jaxpr), key=lambda p: -len(p.stacks)):
        if taken.isdisjoint((pair.producer, pair.consumer)):
            taken.update((pair.producer, pair.consumer))
            found.append(pair)
    out = {path: (jaxpr, found)} if found else {}
    for n, eqn in enumerate(jaxpr.eqns):
        if eqn.primitive.name == "scan" and n not in taken:
            out.update(sites(Parts(eqn).body, (*path, n)))
    return out


def run(jaxpr, consts, args, at, path=()):
    """Runs a jaxpr with what ``at(path, jaxpr)`` gives instead of some of its equations; ``at.paths`` are the paths at which that is something."""
    instead = dict(at(path, jaxpr)) if path in at.paths else {}
    inner = {p[len(path)] for p in at.paths if len(p) > len(path) and p[: len(path)] == path}

    def nested(n):
        parts = Parts(jaxpr.eqns[n])

        def again(read):
            given, carry, xs = parts.split([read(v) for v in parts.eqn.invars])

            def body(c, x):
                out = run(parts.body, parts.body_consts, [*given, *c, *x], at, (*path, n))
                return out[: parts.carry], out[parts.carry :]

            carry, ys = parts.run(body, carry, xs)
            return [*carry, *ys]

        return again

    instead.update((n, nested(n)) for n in inner if n not in instead)
    return evaluate(jaxpr, consts, args, instead=instead)


class Changed:
    """For `run`: changes of pairs, by path."""

    def __init__(self, changes):
        self.changes, self.paths = changes, set(changes)

    def __call__(self, path, jaxpr):
        out = {}
        for change in self.changes[path]:
            saved = {}
            out[change.pair.producer] = lambda read, c=change, s=saved: c.forward(read, s)
            out[change.pair.consumer] = lambda read, c=change, s=saved: c.backward(read, s)
        return out


class Tagged:
    """For `run`: the producers of pairs, with a scope ``offc.PATH.EQUATION`` around every equation of their bodies."""

    def __init__(self, found):
        self.found, self.paths = found, set(found)

    def __call__(self, path, jaxpr):
        return {pair.producer: self._tagged(jaxpr, path, pair.producer) for pair in self.found[path][1]}

    def _tagged(self, jaxpr, path, n):
        made = Parts(jaxpr.eqns[n])
        tag = "-".join(map(str, (*path, n)))

        def again(read):
            consts, carry, xs = made.split([read(v) for v in made.eqn.invars])

            def body(c, x):
                out = evaluate(made.body, made.body_consts, [*consts, *c, *x], scope=lambda k: f"offc.{tag}.{k}")
                return out[: made.carry], out[made.carry :]

            carry, ys = made.run(body, carry, xs)
            return [*carry, *ys]

        return again


def kept(found, op_names, exact=True):
    """For every path, the pairs' changes that save what the op_names (of a program that `Tagged` has named) say."""
    numbers = {}
    for name in op_names:
        for tag, k in _TAG.findall(name):
            numbers.setdefault(tuple(map(int, tag.split("-"))), set()).add(int(k))
    out = {}
    for path, (jaxpr, all_pairs) in found.items():
        out[path] = []
        for pair in all_pairs:
            body = Parts(jaxpr.eqns[pair.producer]).body
            wanted = {v for k in numbers.get((*path, pair.producer), ()) for v in body.eqns[k].outvars}
            out[path].append(Change(jaxpr, pair, wanted, exact=exact))
    return out

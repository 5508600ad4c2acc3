"""``offc.jit``: as ``jax.jit``, but the step is planned before XLA optimizes it.

What happens on the first call with new shapes: the step is traced and compiled as it is, which gives the truth about memory and time. If it fits, that
is the result. Else the planner chooses what scans save on the module before optimization; the choice is carried out on the traced step (see `_scans`),
since JAX has no supported way to compile a module of ours under its shardings; what comes out is compiled, and planned once more after scheduling.
The plain step, planned after scheduling alone, is the rival: the one that fits and is predicted to be faster is kept.
"""

import collections
import json
import threading

import jax

from . import _device, _hook, _offc, _report, _scans

#: How often a tighter budget is tried, where the compiled step came out larger than planned.
TRIES = 2

compiling = threading.RLock()


class Local:
    """The machine that JAX runs on."""

    def __init__(self, platform, device):
        self.platform = platform
        self.options = _device.options(device, platform)

    def lower(self, traced):
        return traced.lower()

    def compile(self, lowered, transform):
        """Compiles with a transformation of the scheduled module that no other thread's compile sees."""
        register, clear, stage = _hook._transformation()
        thread = threading.get_ident()

        def mine(module):
            return transform(module) if threading.get_ident() == thread else None

        with compiling, _hook.suspended(), uncached():
            register(mine, name="offc.jit", stage=stage, platforms=self.platform)
            try:
                return lowered.compile()
            finally:
                clear("offc.jit", stage=stage, platforms=self.platform)


def uncached():
    """A program out of JAX's persistent cache would come without its scheduled module."""
    from jax._src import config

    return config.enable_compilation_cache(False)


class Step:
    """A step that was planned: what to call, and the report."""

    def __init__(self, compiled, report, call, traced=None):
        self.compiled, self.report, self.call, self.traced = compiled, report, call, traced


class Seen:
    """Keeps the largest module of a compile, and what is put in its place."""

    def __init__(self, made=None):
        self.made, self.module, self.result, self.trouble = made, b"", None, None

    def __call__(self, module):
        if len(module) <= len(self.module):
            return None
        self.module, self.result = module, None
        if self.made is None:
            return None
        try:
            self.result = self.made(module)
        except Exception as error:  # Ours must never fail the user's compile.
            self.trouble = error
            _hook._warn(("trouble", str(error)), f"offc.jit: a module stays as it is: {type(error).__name__}: {error}")
            return None
        return self.result[0]


def plan(jitted, args, kwargs, site, memory, options, exact=None):
    """The `Step` for these arguments (arrays, or shapes where the machine is not there)."""
    exact = site.platform == "cpu" if exact is None else exact
    made = {**site.options, **options, "memory": memory, "best_effort": True}
    text = json.dumps(made, sort_keys=True)

    def after(module):
        return _offc.rewrite(module, text)

    traced = jitted.trace(*args, **kwargs)
    seen = Seen()
    compiled = site.compile(site.lower(traced), seen)
    truth = seen.module
    if not truth:
        raise _offc.InternalError("XLA showed no module of the compile")
    rival = after(truth)
    report = _report.Report(json.loads(rival[1]), before=truth, after=rival[0], options=made)
    if report.before["device"] <= memory:
        return Step(compiled, _told(report, "as it is"), compiled, traced)
    best = (report, None, "scheduled")
    flat = _Flat(traced, compiled, args, kwargs)
    tagged = _tagged(flat, site)
    found = [] if tagged is None else _with_scans(flat, site, tagged, truth, made, memory, after, exact)
    best = min([best, *found], key=lambda c: (not c[0].fits, c[0].after["device"] if not c[0].fits else c[0].after["step_ns"]))
    report, step, route = best
    if step is None:
        compiled = site.compile(site.lower(traced), Seen(lambda module: rival if _same(module, truth) else after(module)))
        return Step(compiled, _told(report, route), compiled, traced)
    report.data["before"] = json.loads(rival[1])["before"]
    report.data["slowdown"] = report.after["step_ns"] / max(1, report.before["step_ns"])
    report.data["changed"] = True
    return Step(step.compiled, _told(report, route), step.call, traced)


def _same(module, other):
    from . import _cache

    return _cache._content(module) == _cache._content(other)


def _told(report, route, **more):
    report.data.setdefault("jit", {}).update(route=route, **more)
    return report


class _Flat:
    """A traced step as a function of flat arguments, with calls inlined, and how to call it from the user's."""

    def __init__(self, traced, compiled, args, kwargs):
        self.leaves = jax.tree.leaves(compiled_inputs(traced, args, kwargs))
        body, consts = _scans.opened(traced.jaxpr)
        self.donated = tuple(n for n, info in enumerate(jax.tree.leaves(traced.args_info)) if info.donated)
        self.out_tree = jax.tree.structure(traced.out_info)
        several = len(_devices(compiled)) > 1
        self.shardings = {}
        if several:
            inputs = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda s: s is None)
            self.shardings = {"in_shardings": tuple(inputs), "out_shardings": jax.tree.leaves(compiled.output_shardings)}
        self.name = traced.fun_name

        def inlined(*flat):
            return _scans.evaluate(body, consts, flat, inline=True)

        flat_traced = self.trace(inlined)
        self.jaxpr, self.consts = _scans.opened(flat_traced.jaxpr)

    def trace(self, function, leaves=None, **shardings):
        function.__name__ = self.name
        jitted = jax.jit(function, donate_argnums=self.donated, **{**self.shardings, **shardings})
        return jitted.trace(*(self.leaves if leaves is None else leaves))

    def changed(self, at):
        def step(*flat):
            return _scans.run(self.jaxpr, self.consts, flat, at)

        return step

    def call(self, compiled, place=None):
        def call(*args, **kwargs):
            flat = jax.tree.leaves((args, kwargs))
            return jax.tree.unflatten(self.out_tree, compiled(*(place(flat) if place else flat)))

        return call


def compiled_inputs(traced, args, kwargs):
    """The dynamic arguments; static ones are no leaves of what was traced."""
    count = len(jax.tree.leaves(traced.args_info))
    if len(jax.tree.leaves((args, kwargs))) != count:
        raise NotImplementedError("offc.jit: pass static arguments by closure or functools.partial")
    return args, kwargs


def _devices(compiled):
    for sharding in jax.tree.leaves(compiled.input_shardings):
        return sharding.device_set
    return ()


def _tagged(flat, site):
    """The pairs of scans, and the module before optimization in which every equation of theirs has a name; ``None`` where there are none."""
    found = _scans.sites(flat.jaxpr)
    if not found:
        return None
    lowered = site.lower(flat.trace(flat.changed(_scans.Tagged(found))))
    return found, lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()


def _with_scans(flat, site, tagged, truth, made, memory, after, exact):
    """The step with other stacks, compiled: at most one that fits, or the last that was tried."""
    found, module = tagged
    asked, out, seen_plans = memory, [], set()
    for _ in range(TRIES + 1):
        try:
            _, text = _offc.rewrite(module, json.dumps({**made, "memory": max(1, asked)}, sort_keys=True), truth)
        except (_offc.BadModule, _offc.Infeasible, ValueError):
            return out
        plan = json.loads(text)
        names = sorted({s["op_name"] for s in plan.get("saved", ()) if s["droppable"]})
        if not plan["changed"] or tuple(names) in seen_plans:
            return out
        seen_plans.add(tuple(names))
        changes = _scans.kept(found, names, exact)
        seen = Seen(after)
        traced = flat.trace(flat.changed(_scans.Changed(changes)))
        compiled = site.compile(site.lower(traced), seen)
        if seen.result is None:
            return out
        report = _report.Report(json.loads(seen.result[1]), before=seen.module, after=seen.result[0], options=made)
        dropped = sum(len(c.dropped) for cs in changes.values() for c in cs)
        _told(report, "scans", dropped=dropped, kept=names, promised=plan["after"]["device"], unplanned=report.before["device"])
        report.changes = changes
        out.append((report, Step(compiled, report, flat.call(compiled)), "scans"))
        if report.before["device"] <= memory:
            return out
        asked -= max(report.before["device"] - memory, asked // 50)
    return out


class Jitted:
    """What `jit` returns: called like the step. ``report`` is the report of the last plan."""

    def __init__(self, fn, memory, device, strict, options, jit_options):
        self._jitted = jax.jit(fn, **jit_options)
        self._memory, self._device, self._strict, self._options = memory, device, strict, options
        self._steps = collections.OrderedDict()
        self._lock = threading.Lock()
        self.__wrapped__, self.__name__, self.__doc__ = fn, getattr(fn, "__name__", "step"), getattr(fn, "__doc__", None)
        self.report = None

    def __call__(self, *args, **kwargs):
        leaves, tree = jax.tree.flatten((args, kwargs))
        if any(isinstance(x, jax.core.Tracer) for x in leaves):
            return self._jitted(*args, **kwargs)
        key = tree, tuple(map(_signature, leaves)), self._memory
        step = self._steps.get(key)
        if step is None:
            with self._lock:
                step = self._steps.get(key)
                if step is None:
                    step = self._steps[key] = self._planned(args, kwargs, leaves)
        return step.call(*args, **kwargs)

    def _planned(self, args, kwargs, leaves):
        platform = next((d.platform for x in leaves if isinstance(x, jax.Array) for d in x.devices()), jax.default_backend())
        platform = "cuda" if platform == "gpu" else platform
        try:
            if _hook._transformation() is None:
                raise RuntimeError("this JAX has no jax.extend.xla.register_hlo_module_transformation (JAX 0.12 has it)")
            step = plan(self._jitted, args, kwargs, Local(platform, self._device), self._memory, self._options)
        except Exception as error:
            if self._strict:
                raise _hook.BudgetError(f"offc.jit: the step is not planned: {type(error).__name__}: {error}") from error
            path = _report.save_trouble(error)
            _hook._warn(("jit", str(error)), f"offc.jit: the step runs as it is: {type(error).__name__}: {error} (see {path})")
            return Step(None, None, self._jitted)
        self.report = step.report
        _report.add(step.report)
        if not step.report.fits:
            message = f"offc.jit: {step.report.module} takes {_report.size(step.report.after['device'])} of the {_report.size(self._memory)} it may take"
            if self._strict:
                raise _hook.BudgetError(message)
            _hook._warn(("jit-floor", step.report.module, self._memory), message)
        return step

    def lower(self, *args, **kwargs):
        """As of ``jax.jit``: the step as it is."""
        return self._jitted.lower(*args, **kwargs)

    def trace(self, *args, **kwargs):
        """As of ``jax.jit``: the step as it is."""
        return self._jitted.trace(*args, **kwargs)


def _signature(x):
    aval = jax.typeof(x)
    placed = x.sharding if isinstance(x, jax.Array) and getattr(x, "committed", True) else None
    return aval.shape, aval.dtype, getattr(aval, "weak_type", False), placed


def jit(fn=None, *, memory, device="auto", strict=False, donate_argnums=(), in_shardings=None, out_shardings=None, **options):
    """As ``jax.jit``, for a training step that is to fit: ``step = offc.jit(step, memory="24GiB", donate_argnums=(0, 1))``.

    On the first call with new shapes the step is planned before XLA optimizes it, so that what scans save for their backward scans is chosen as a good
    hand-written policy would be, or better, and planned once more after scheduling; later calls compile nothing.
    State stays on the device between steps. ``memory``, ``device``, ``strict``, ``options``: as of `install`. ``report`` of the result says what was done.
    """
    shardings = {k: v for k, v in (("in_shardings", in_shardings), ("out_shardings", out_shardings)) if v is not None}

    def made(fn):
        return Jitted(fn, _hook._size(memory), device, strict, dict(options), {"donate_argnums": donate_argnums, **shardings})

    return made if fn is None else made(fn)

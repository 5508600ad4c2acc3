"""The hook inside JAX's compile."""

import contextlib
import json
import os
import threading
import warnings

from . import _cache, _device, _offc, _report

NAME = "offc"
#: A serialized module of fewer bytes is a helper of JAX's or a fusion of XLA's autotuner, never a training step.
SMALLEST = 32 << 10


class BudgetError(RuntimeError):
    """With ``strict=True``: a module does not fit its budget, or could not be planned."""


class _Settings:
    """What `install` was told."""

    def __init__(self, memory, device, strict, options):
        self.memory, self.device, self.strict, self.options = memory, device, strict, options


_lock = threading.Lock()
_installed = {}
_context = None
_warned = set()


def _forked():
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def _size(memory):
    if isinstance(memory, bool) or not isinstance(memory, (int, str)):
        raise TypeError(f"memory is bytes as a number or text such as '24GiB', not {memory!r}")
    size = _offc.parse_size(memory) if isinstance(memory, str) else memory
    if size <= 0:
        raise ValueError(f"memory is more than nothing, not {memory!r}")
    return size


def _warn(key, message):
    with _lock:
        if key in _warned:
            return
        _warned.add(key)
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _transformation():
    try:
        from jax.extend import xla

        return xla.register_hlo_module_transformation, xla.clear_hlo_module_transformation, xla.PipelineStage.POST_SCHEDULER
    except (ImportError, AttributeError):
        return None


def _present():
    from jax._src import xla_bridge

    return [p for p in xla_bridge.backends() if p in ("cpu", "cuda", "gpu")]


def _budget_context():
    """JAX's own kind of context: a change of budget misses the jit caches, so the program is compiled again."""
    global _context
    if _context is None:
        import jax

        make = getattr(jax, "make_user_context", None)
        _context = make(None) if make else contextlib.nullcontext
    return _context


def _current(settings):
    context = _budget_context()
    value = getattr(context, "value", None)
    return settings.memory if value is None else value


def install(memory, device="auto", platforms=None, *, strict=False, **options):
    """Plans every big module that JAX compiles from now on.

    ``memory``: device bytes a step may take, as XLA counts them (argument + output − alias + temp); text (``"24GiB"``) or a number of bytes.
    ``device``: ``auto`` asks JAX for the real one; a name of ``offc devices``, or a path to an XLA device description, plans for that.
    ``platforms``: ``"cuda"``, ``"cpu"``, or several; those present where nothing is said, the CPU only where there is nothing else.
    ``strict``: raise `BudgetError` out of the compile where the budget is not met, instead of warning.
    ``options``: as in ``offc.h``: ``host_memory``, ``link_h2d``, ``link_d2h``, ``gpus_per_node``, ``passes``, ``calibration``.

    Call it after ``jax.distributed.initialize``: it makes JAX start its backends. Installing again replaces the settings.
    """
    settings = _Settings(_size(memory), device, strict, dict(options))
    hook = _transformation()
    if hook is None:
        _warn("old", "offc: this JAX has no jax.extend.xla.register_hlo_module_transformation; nothing is installed (JAX 0.12 has it)")
        return
    register, _, stage = hook
    _budget_context()  # A new kind of context empties JAX's caches: now, not in the middle of a compile.
    if platforms is None:
        platforms = _present()
        if set(platforms) != {"cpu"}:
            platforms = [p for p in platforms if p != "cpu"]
    elif isinstance(platforms, str):
        platforms = [platforms]
    for platform in platforms:
        made = {**settings.options, **_device.options(device, "cpu" if platform == "cpu" else platform)}
        _offc_check({**made, "memory": settings.memory})
        with _lock:
            fresh = platform not in _installed
            _installed[platform] = (settings, made)
        if fresh:
            register(_callback(platform), name=NAME, stage=stage, platforms=platform)
    _cache_key()


def _offc_check(options):
    """Wrong options are an error of the call to `install`, not of a compile later on."""
    try:
        _offc.rewrite(b"HloModule", json.dumps(options))
    except _offc.BadModule:
        pass


def uninstall():
    """Takes the hook away again; what is compiled stays as it is."""
    hook = _transformation()
    with _lock:
        platforms = list(_installed)
        _installed.clear()
    for platform in platforms:
        if hook is not None:
            hook[1](NAME, stage=hook[2], platforms=platform)


@contextlib.contextmanager
def budget(memory):
    """``with offc.budget("24GiB"):`` another budget for what is compiled inside; a function that was compiled under another one compiles again."""
    with _budget_context()(_size(memory)):
        yield


def _cache_key():
    """JAX's persistent compilation cache must not give a program that was planned for another budget."""
    try:
        from jax._src import cache_key
    except ImportError:
        return
    before = cache_key.custom_hook
    if getattr(before, "offc", False):
        return

    def hook():
        with _lock:
            told = sorted((p, _current(s), json.dumps(made, sort_keys=True)) for p, (s, made) in _installed.items())
        return before() + (f"offc {_offc.__version__} {told}" if told else "")

    hook.offc = True
    cache_key.custom_hook = hook


_here = threading.local()


@contextlib.contextmanager
def suspended():
    """What this thread compiles inside is planned by somebody else."""
    before = getattr(_here, "suspended", False)
    _here.suspended = True
    try:
        yield
    finally:
        _here.suspended = before


def _callback(platform):
    def transform(module):
        if len(module) < SMALLEST or getattr(_here, "suspended", False):
            return None
        with _lock:
            installed = _installed.get(platform)
        if installed is None:
            return None
        settings, made = installed
        try:
            return _planned(module, settings, made)
        except BudgetError:
            raise
        except Exception as error:  # Ours must never fail the user's compile.
            path = _report.save_trouble(error)
            message = f"offc: a module stays as it is: {type(error).__name__}: {error}" + (f" (see {path})" if path else "")
            if settings.strict:
                raise BudgetError(message) from error
            _warn(("trouble", str(error)), message)
            return None

    return transform


def _planned(module, settings, made):
    memory = _current(settings)
    if os.environ.get("OFFC_TEST_FAIL"):
        raise _offc.InternalError("forced by OFFC_TEST_FAIL")
    options = json.dumps({**made, "memory": memory, "best_effort": not settings.strict}, sort_keys=True)
    name = _cache.key(module, options)
    known = _cache.load(name)
    if known is None:
        try:
            done, text = _offc.rewrite(module, options)
        except _offc.Infeasible as error:
            raise BudgetError(f"offc: {error}") from error
        trouble = _cache.store(name, done, text)
        if trouble is not None and trouble != "switched off":
            _warn(("cache", trouble), f"offc: plans are not kept: {trouble}")
        known = done, text
    done, text = known
    report = _report.Report(json.loads(text), before=module, after=done, options=made)
    _report.add(report)
    if not report.fits:
        message = (
            f"offc: {report.module} takes {_report.size(report.after['device'])} of the {_report.size(memory)} it may take: "
            "no plan goes lower; offc.report() says what holds it"
        )
        _warn(("floor", report.module, memory), message)
    return done

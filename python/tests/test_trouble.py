"""Whatever goes wrong inside, the user's compile goes on with a plain message, or is refused where that was asked for."""

import os
import subprocess
import sys
import warnings

import gpt
import jax
import jax.numpy as jnp
import offc
import pytest
from conftest import arguments, compiled, device_bytes, losses, plain
from offc import _hook, _offc


@pytest.fixture(autouse=True)
def unwarned():
    _hook._warned.clear()


def test_an_error_of_the_planner_leaves_the_program_and_warns_once(monkeypatch):
    expected, before, _ = plain()
    offc.install(memory=before // 2, platforms="cpu")
    monkeypatch.setenv("OFFC_TEST_FAIL", "1")
    with pytest.warns(RuntimeWarning, match="stays as it is") as told:
        step = compiled()
    assert len([w for w in told if "offc" in str(w.message)]) == 1
    path = str(told[0].message).rpartition("(see ")[2].rstrip(")")
    assert "forced by OFFC_TEST_FAIL" in open(path).read()
    assert device_bytes(step) == before and expected.startswith(losses(step, 2))


def test_an_error_of_the_planner_refuses_where_strict(monkeypatch):
    offc.install(memory=plain()[1] // 2, platforms="cpu", strict=True)
    monkeypatch.setenv("OFFC_TEST_FAIL", "1")
    with pytest.raises(Exception, match="stays as it is: InternalError: forced by OFFC_TEST_FAIL"):
        compiled()


def test_an_error_in_jit_runs_the_step_as_it_is(monkeypatch):
    expected, before, _ = plain(scan=True)
    monkeypatch.setattr(_offc, "rewrite", lambda *_: (_ for _ in ()).throw(_offc.InternalError("forced")))
    step = offc.jit(gpt.step(scan=True), memory=before // 2)
    with pytest.warns(RuntimeWarning, match="runs as it is: InternalError: forced"):
        assert expected.startswith(losses(step, 1))
    with pytest.raises(offc.BudgetError, match="not planned: InternalError: forced"):
        offc.jit(gpt.step(scan=True), memory=before // 2, strict=True)(*arguments())


def test_a_budget_below_the_floor_warns_or_refuses():
    _, before, _ = plain()
    offc.install(memory="1MiB", platforms="cpu")
    with pytest.warns(RuntimeWarning, match=r"takes .* of the 1.00 MiB it may take: no plan goes lower"):
        step = compiled()
    assert device_bytes(step) < before and not offc.report().fits
    offc.install(memory="1MiB", platforms="cpu", strict=True)
    with pytest.raises(Exception, match="lowest peak"):
        compiled()


def _full(monkeypatch, how, tmp_path):
    if how == "no place":
        monkeypatch.setenv("OFFC_CACHE_DIR", "/proc/nowhere")
        return None
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("how", ["no place", "full"])
def test_a_cache_that_cannot_be_written_is_no_trouble(how, monkeypatch, tmp_path):
    _, before, _ = plain()
    offc.install(memory=before // 2, platforms="cpu")
    undo = _full(monkeypatch, how, tmp_path)
    try:
        with pytest.warns(RuntimeWarning, match="plans are not kept"):
            step = compiled()
    finally:
        if undo:
            undo()
    assert device_bytes(step) <= before // 2
    plans = tmp_path / "plans"
    assert not plans.exists() or not list(plans.iterdir()), "no half a plan stays"


def test_a_plan_on_disk_that_is_broken_is_made_again(tmp_path):
    _, before, _ = plain()
    offc.install(memory=before // 2, platforms="cpu")
    compiled()
    for file in (tmp_path / "plans").iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert device_bytes(compiled()) <= before // 2


def test_an_old_jax_is_told_and_left_alone(monkeypatch):
    expected, before, _ = plain()
    monkeypatch.delattr(jax.extend.xla, "register_hlo_module_transformation", raising=False)
    with pytest.raises(AttributeError):
        jax.extend.xla.register_hlo_module_transformation
    monkeypatch.setitem(sys.modules, "jax.extend.xla", None)
    monkeypatch.delattr(jax.extend, "xla")
    with pytest.warns(RuntimeWarning, match="JAX has no jax.extend.xla.register_hlo_module_transformation; nothing is installed"):
        offc.install(memory=before // 2, platforms="cpu")
    assert device_bytes(compiled()) == before
    with pytest.warns(RuntimeWarning, match="runs as it is: RuntimeError: this JAX has no"):
        assert expected.startswith(losses(offc.jit(gpt.step(), memory=before // 2), 1))


def test_without_a_gpu_a_name_is_asked_for():
    with pytest.raises(ValueError, match="no GPU.*device="):
        offc.install(memory="1GiB", platforms="cuda")


def test_wrong_arguments_are_errors_of_the_call():
    for wrong in ({"memory": "much"}, {"memory": 0}, {"memory": "1GiB", "passes": "no-such-pass"}, {"memory": "1GiB", "colour": 1}):
        with pytest.raises((ValueError, TypeError)):
            offc.install(platforms="cpu", **wrong)
    with pytest.raises(ValueError):
        offc.jit(lambda x: x, memory="much")


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import jax, offc
from offc import _hook, _report
jax.config.update("jax_platforms", "cpu")
_hook._lock.acquire(); _report._lock.acquire()      # as if another thread held them in the instant of the fork
child = os.fork()
if child == 0:
    import threading
    done = threading.Timer(30, lambda: os._exit(7)); done.daemon = True; done.start()
    _hook._warn("fork", "told"); _report.add(None); offc.clear_reports(); offc.uninstall()
    os._exit(0)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_is_not_stuck():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, env=environment, timeout=120)
    assert "child 0" in done.stdout, done.stdout + done.stderr


def test_little_modules_pass_untouched(monkeypatch):
    monkeypatch.setattr(_offc, "rewrite", lambda *_: pytest.fail("planned"))
    monkeypatch.setattr(_hook, "_offc_check", lambda *_: None)
    offc.install(memory="1MiB", platforms="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jax.jit(lambda x: jnp.sin(x) + 1)(0.0) == 1.0
    assert not offc.reports()

"""What was done to the modules that were compiled."""

import collections
import html
import json
import os
import tempfile
import threading
import traceback

from . import _offc

#: How many reports are kept.
KEPT = 64
#: How many buffers a page shows.
SHOWN = 40

_reports = collections.deque(maxlen=KEPT)
_lock = threading.Lock()


def _forked():
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def size(count):
    """Bytes for a person."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count} B"


class Report:
    """One module: figures before and after, the floor, what was decided. ``data`` is the report of the planner (the form of
    ``offc rewrite --json``), in bytes and nanoseconds."""

    def __init__(self, data, before=None, after=None, options=None):
        self.data = data
        self._before, self._after, self._options = before, after, options or {}

    @property
    def module(self):
        """The module's name, such as ``jit_step``."""
        return self.data["module"]

    @property
    def asked(self):
        """The budget in bytes."""
        return self.data["asked"]

    @property
    def fits(self):
        """Whether the budget is met."""
        return self.data["fits"]

    @property
    def changed(self):
        """Whether the module was changed at all."""
        return self.data["changed"]

    @property
    def before(self):
        """Figures of the module as XLA scheduled it: ``device``, ``host``, ``step_ns``, ``memory``."""
        return self.data["before"]

    @property
    def after(self):
        """Figures of the module as it is run."""
        return self.data["after"]

    @property
    def floor(self):
        """The lowest device bytes that were found, where that was looked for; else ``None``."""
        return self.data.get("floor")

    @property
    def slowdown(self):
        """Predicted step time after over before."""
        return self.data["slowdown"]

    @property
    def decisions(self):
        """Every decision: ``value``, ``bytes``, ``residence``, ``reason``."""
        return self.data["decisions"]

    def achieved(self, compiled):
        """Device bytes that XLA counts for a compiled function (``jax.jit(f).lower(…).compile()``), beside what was promised."""
        figures = compiled.memory_analysis()
        device = (
            figures.argument_size_in_bytes + figures.output_size_in_bytes - figures.alias_size_in_bytes + figures.temp_size_in_bytes
        )
        return {"requested": self.asked, "promised": self.after["device"], "achieved": device}

    def __str__(self):
        rows = [f"{self.module} on {self.data['device']}: {size(self.asked)} of device memory asked for"]
        for name, side in (("before", self.before), ("after", self.after)):
            rows.append(f"  {name:7} {size(side['device']):>12} device {size(side['host']):>12} host {side['step_ns'] / 1e6:>10.2f} ms predicted")
        if self.floor is not None:
            rows.append(f"  {'floor':7} {size(self.floor):>12}")
        if not self.changed:
            rows.append("  nothing was changed" + (": it fits as it is" if self.fits else ""))
        else:
            rows.extend(f"  {line}" for line in self.data["log"])
            rows.append(f"  slowdown {100 * (self.slowdown - 1):+.2f} % predicted")
        if "achieved" in self.data:
            rows.append(f"  XLA counts {size(self.data['achieved']['achieved'])} of the compiled step")
        if not self.fits:
            rows.append("  the budget is NOT met")
        return "\n".join(rows)

    __repr__ = __str__

    def _html(self):
        top = max(self.before["device"], self.after["device"], self.asked, 1)
        figures = [("before", self.before["device"]), ("after", self.after["device"]), ("asked", self.asked)]
        figures += [("floor", self.floor)] if self.floor is not None else []
        bars = [f'<div>{name} {size(n)}<div style="background:#4a7;height:1em;width:{100 * n / top:.1f}%"></div></div>' for name, n in figures]
        kinds = [(d, d["residence"] if isinstance(d["residence"], str) else next(iter(d["residence"]))) for d in self.decisions]
        decisions = [(size(d["bytes"]), kind, d["value"]["instr"], d["reason"]) for d, kind in sorted(kinds, key=lambda k: -k[0]["bytes"])]
        parts = [f"<pre>{html.escape(str(self))}</pre>", *bars, _table("decisions", ("bytes", "what", "value", "why"), decisions)]
        for name, module in (("before", self._before), ("after", self._after)):
            peak = module and self._peak(module)
            if peak:
                rows = [
                    (size(h["bytes"]), h["role"], h["pass"], h["op_name"] or h["name"], h["source"] or "")
                    for h in sorted(peak["alive"], key=lambda h: -h["bytes"])[:SHOWN]
                ]
                parts.append(_table(f"{name}: alive at the peak, while {peak['at']} runs", ("bytes", "role", "pass", "value", "source"), rows))
        return "".join(parts)

    def _machine(self):
        return json.dumps({"memory": self.asked, **{k: v for k, v in self._options.items() if k in ("device", "spec", "calibration")}})

    def _peak(self, module):
        try:
            return json.loads(_offc.peak_report(module, self._machine()))
        except (_offc.BadModule, _offc.InternalError, ValueError):
            return None

    def _repr_html_(self):
        return self._html()

    def show(self):
        """Shows the report: as a table in a notebook, as text elsewhere."""
        try:
            from IPython import get_ipython
            from IPython.display import HTML, display
        except ImportError:
            get_ipython = None
        if get_ipython is not None and get_ipython() is not None:
            display(HTML(self._html()))
        else:
            print(self)

    def save(self, path):
        """Writes one HTML page that needs nothing else, or the data where the name ends in ``.json``."""
        if str(path).endswith(".json"):
            _write(path, json.dumps(self.data, indent=1))
        else:
            title = html.escape(self.module)
            _write(path, f'<!doctype html><meta charset="utf-8"><title>{title}</title><body style="font-family:sans-serif">{self._html()}')

    def trace(self, path):
        """Writes what happens when in the step as it is run, for ui.perfetto.dev: kernels, copies, memory."""
        _write(path, _offc.trace(self._after or self._before, self._machine()))

    def save_module(self, path):
        """Writes the module (``HloModuleProto``) as it is run, for ``offc simulate``, ``offc peak``, ``offc diff``."""
        _write(path, self._after or self._before)


def _table(title, head, rows):
    line = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"
    return f"<h3>{html.escape(title)}</h3><table>{line(head, 'th')}{''.join(line(r, 'td') for r in rows)}</table>"


def _write(path, content):
    directory = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".offc-", delete=False) as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    os.replace(file.name, path)


def add(report):
    """Keeps a report."""
    with _lock:
        _reports.append(report)


def reports():
    """Reports of the modules that were compiled since the program began, oldest first; the last 64."""
    with _lock:
        return list(_reports)


def clear_reports():
    """Forgets the reports that are kept."""
    with _lock:
        _reports.clear()


def report():
    """The report of the largest module that was compiled, or ``None``: usually the training step. ``reports()`` gives all."""
    kept = reports()
    return max(reversed(kept), key=lambda r: r.before["device"]) if kept else None


def save_trouble(error):
    """Writes what happened to a file for a bug report; its path, or ``None``."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="offc-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
        return file.name
    except OSError:
        return None

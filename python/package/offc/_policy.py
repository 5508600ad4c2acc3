"""A plan as people write policies today: names for ``jax.checkpoint``, lines for MaxText."""

import jax

from . import _jit, _plan

#: Tensors that MaxText's ``remat_policy: custom`` knows (its ``configs/base.yml``).
MAXTEXT = (
    "decoder_layer_input", "context", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo", "query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj",
)  # fmt: skip
_VIEWS = {"reshape", "transpose", "squeeze", "convert_element_type", "name", "broadcast_in_dim", "copy"}


class Policy:
    """``saved``, ``offloaded``, ``recomputed``: names that stand in the step by ``checkpoint_name``. ``unsaid``: what the plan does that no name says.
    ``policy``: what ``jax.checkpoint(layer, policy=…)`` takes. Printed: all of it as text."""

    def __init__(self, saved, offloaded, recomputed, unsaid, report):
        self.saved, self.offloaded, self.recomputed, self.unsaid, self.report = saved, offloaded, recomputed, unsaid, report

    @property
    def policy(self):
        return jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=self.saved,
            names_which_can_be_offloaded=self.offloaded,
            offload_src="device",
            offload_dst="pinned_host",
        )

    def maxtext(self):
        """Lines for a MaxText configuration; tensors that the step does not name are left out."""
        where = [*((n, "device") for n in self.saved), *((n, "offload") for n in self.offloaded), *((n, "remat") for n in self.recomputed)]
        return "\n".join(["remat_policy: custom", *(f"{name}: {place}" for name, place in where if name in MAXTEXT)])

    def __str__(self):
        lines = [
            "jax.checkpoint_policies.save_and_offload_only_these_names(",
            f"    names_which_can_be_saved={self.saved},",
            f"    names_which_can_be_offloaded={self.offloaded},",
            '    offload_src="device", offload_dst="pinned_host")',
        ]
        if any(name in MAXTEXT for name in (*self.saved, *self.offloaded, *self.recomputed)):
            lines += ["", self.maxtext()]
        if self.unsaid:
            lines += ["", "cannot be said by names:", *(f"  {what}" for what in self.unsaid)]
        return "\n".join(lines)

    __repr__ = __str__


def policy(fn, *args, memory, device="h100-sxm", topology="1x1x1", donate_argnums=(), **options):
    """The plan of `offc.jit` for a step with ``checkpoint_name``s in its scanned layers, as a policy. Arguments as of `offc.plan`; no GPU is needed.

    The layers must not be under ``jax.checkpoint`` already: what a policy there drops cannot be chosen any more.
    """
    step = fn if isinstance(fn, _jit.Jitted) else _jit.jit(fn, memory=memory, donate_argnums=donate_argnums, **options)
    report = _plan.plan(step, *args, memory=memory, device=device, topology=topology)
    return of(report)


def of(report):
    """The policy of a report of `offc.jit`."""
    changes = getattr(report, "changes", None)
    if report.data["jit"]["route"] == "as it is":
        return Policy([], [], [], ["the step fits as it is: no policy is needed"], report)
    if changes is None:
        return Policy([], [], [], ["the plan is one of the scheduled module: what it does has no place in the source"], report)
    saved, offloaded, recomputed, unsaid = {}, {}, {}, []
    for change in (c for found in changes.values() for c in found):
        body = change.made.body
        names, parent = {}, {}
        for eqn in body.eqns:
            if eqn.primitive.name in _VIEWS:
                parent[eqn.outvars[0]] = eqn.invars[0]
            if eqn.primitive.name == "name":
                names[_root(eqn.invars[0], parent)] = eqn.params["name"]
        host = {_root(v, parent) for v in change.offloaded}
        kept = {_root(v, parent): v for v in [*change.extra, *change.given] if v not in body.invars}
        for root, name in names.items():
            (offloaded if root in host else saved if root in kept else recomputed)[name] = None
        where = {v: eqn for eqn in body.eqns for v in eqn.outvars}
        for root, v in kept.items():
            if root not in names:
                unsaid.append(f"{'offloads' if root in host else 'saves'} the {v.aval.str_short()} of {_told(where[v])}, which has no checkpoint_name")
    if report.data["log"]:
        unsaid.append("after scheduling: " + "; ".join(report.data["log"]))
    return Policy(list(saved), list(offloaded), list(recomputed), unsaid, report)


def _root(v, parent):
    while v in parent:
        v = parent[v]
    return v


def _told(eqn):
    from jax._src import source_info_util

    return f"{eqn.primitive.name} at {source_info_util.summarize(eqn.source_info)}"

"""offc: JAX training steps that fit a GPU memory budget, bit for bit.

One line in the training script, before the first big ``jax.jit`` compiles::

    import offc
    offc.install(memory="24GiB")

Every big module that XLA compiles from then on is planned after XLA has scheduled it: values leave for pinned host memory and come back just in
time, are computed again, or stay. ``offc.report()`` says what was done. Nothing here can break a compile unless ``strict=True`` asks for it.
"""

from ._hook import BudgetError, budget, install, uninstall
from ._jit import jit
from ._offc import BadModule, Infeasible, InternalError, __version__
from ._report import Report, clear_reports, report, reports
from ._plan import devices, plan
from ._policy import Policy, policy

__all__ = [
    "BadModule",
    "BudgetError",
    "Infeasible",
    "InternalError",
    "Policy",
    "Report",
    "__version__",
    "budget",
    "clear_reports",
    "devices",
    "install",
    "jit",
    "plan",
    "policy",
    "report",
    "reports",
    "uninstall",
]

"""Plans for machines that are not there: the real XLA:GPU compiler runs, no GPU does."""

import json
import os
import threading

from . import _device, _hook, _jit, _offc, _report, _target

_counter = 0


def _client():
    """The CUDA plugin, without a device."""
    try:
        import jax_plugins.xla_cuda13 as plugin
    except ImportError:
        try:
            import jax_plugins.xla_cuda12 as plugin
        except ImportError as error:
            raise RuntimeError('offc.plan needs XLA\'s CUDA plugin: pip install "jax[cuda13]" (no GPU is needed)') from error
    from jax._src import xla_bridge
    from jax._src.lib import xla_client

    xla_bridge.backends()  # JAX loads its plugins here, and no plugin can be loaded twice.
    if not xla_client.pjrt_plugin_loaded("cuda"):
        path = os.path.join(os.path.dirname(plugin.__file__), "xla_cuda_plugin.so")
        api = xla_client.load_pjrt_plugin_dynamically("cuda", path)
    else:
        from jax._src.lib import _jax

        api = _jax.get_pjrt_plugin("cuda")
    if not xla_client.pjrt_plugin_initialized("cuda"):
        xla_client.initialize_pjrt_plugin("cuda")
    return api


def devices(device="h100-sxm", topology="1x1x1"):
    """Devices of a machine that is not there, to build a ``jax.sharding.Mesh`` of. ``topology``: slices x hosts x devices a host, so
    ``"1x1x8"`` is one host of eight."""
    from jax._src.lib import xla_client

    spec = _target.config(device) if "gpu_device_info" not in device else device
    return xla_client.make_c_api_device_topology(_client(), "offc", target_config=spec, topology=topology)._make_compile_only_devices()


def _placed(args, found):
    """The arguments as shapes on the devices `found`: shardings keep their mesh's shape and axes, what has none lies on the first device."""
    import jax
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    meshes = {}

    def mesh_of(mesh):
        shape = tuple(mesh.shape.values()) if hasattr(mesh.shape, "values") else mesh.devices.shape
        if (shape, mesh.axis_names) not in meshes:
            count = int(numpy.prod(shape))
            if count > len(found):
                raise ValueError(f"the arguments' mesh has {count} devices, the topology {len(found)}")
            meshes[shape, mesh.axis_names] = Mesh(numpy.array(found[:count]).reshape(shape), mesh.axis_names)
        return meshes[shape, mesh.axis_names]

    leaves = jax.tree.leaves(args)
    named = [leaf.sharding for leaf in leaves if isinstance(getattr(leaf, "sharding", None), NamedSharding)]
    whole = NamedSharding(mesh_of(named[0].mesh), PartitionSpec()) if named else SingleDeviceSharding(found[0])

    def shape(leaf):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding):
            sharding = NamedSharding(mesh_of(sharding.mesh), sharding.spec)
        else:
            sharding = whole
        aval = jax.api_util.shaped_abstractify(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=getattr(aval, "weak_type", False))

    return jax.tree.map(shape, args)


class Remote:
    """A machine that is not there: as `_jit.Local`."""

    platform = "cuda"

    def __init__(self, device, topology):
        self.devices = devices(device, topology)
        self.options = _device.options(device, "cuda")

    def lower(self, traced):
        return traced.lower(lowering_platforms=("cuda",))

    def compile(self, lowered, transform):
        from jax._src.lib import _xla

        global _counter
        api, thread = _client(), threading.get_ident()

        def mine(module):
            return transform(module) if threading.get_ident() == thread and len(module) >= _hook.SMALLEST else None

        with _jit.compiling, _hook.suspended(), _jit.uncached():
            _counter += 1
            name = f"offc-plan-{_counter}"
            _xla.register_xla_transform_c_api(api, name, 1, mine)
            try:
                # XLA's own estimates of its kernels are better than a roofline.
                return lowered.compile(compiler_options={"xla_gpu_collect_cost_model_stats": True})
            finally:
                _xla.clear_xla_transform_c_api(api, name, 1)


def plan(fn, *args, memory=None, device="h100-sxm", topology="1x1x1", donate_argnums=(), floor=False, **options):
    """Would this step fit, and what would it cost? Compiles ``fn`` for GPUs that are not there, with the planner in the compile.

    ``args``: arrays or ``jax.ShapeDtypeStruct``; their shardings say how the step is divided (a mesh of any devices, or of `offc.devices`).
    ``fn``: a function, a jitted one, or what `offc.jit` made; of the last, the step is planned as it does. ``memory``: what one device may use.
    ``floor``: find the lowest peak too. Returns a `Report`, whose ``data["achieved"]`` are XLA's own figures of the compiled step. On a laptop,
    without a GPU.
    """
    import jax

    if isinstance(fn, _jit.Jitted):
        memory = fn._memory if memory is None else memory
        options = {**fn._options, **options}
    if memory is None:
        raise TypeError("offc.plan: memory= is missing")
    size = _hook._size(memory)
    site = Remote(device, topology)
    shapes = _placed(args, site.devices)
    if isinstance(fn, _jit.Jitted):
        step = _jit.plan(fn._jitted, shapes, {}, site, size, {**options, "floor": floor})
        report, compiled = step.report, step.compiled
    else:
        made = {**options, **site.options, "memory": size, "best_effort": True, "floor": floor}
        text = json.dumps(made, sort_keys=True)
        seen = _jit.Seen(lambda module: _offc.rewrite(module, text))
        jitted = fn if hasattr(fn, "trace") else jax.jit(fn, donate_argnums=donate_argnums)
        compiled = site.compile(site.lower(jitted.trace(*shapes)), seen)
        if seen.trouble is not None:
            raise seen.trouble
        if seen.result is None:
            raise ValueError("offc.plan: the step is too small to be planned")
        report = _report.Report(json.loads(seen.result[1]), before=seen.module, after=seen.result[0], options=made)
    report.data["achieved"] = report.achieved(compiled)
    report.compiled = compiled
    _report.add(report)
    return report

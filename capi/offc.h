/* offc.h - the C interface of offc: makes a compiled JAX/XLA training step fit a GPU memory budget, bit for bit.
 *
 * Modules go in and out as HLO text or HloModuleProto bytes, options and reports as JSON (`offc explain` and the documentation of
 * `offc::embed` say what may stand there). Nothing is global, nothing is kept after a call, nothing unwinds or throws across, and any
 * thread may call at any time. The same module and options give the same bytes.
 */
#ifndef OFFC_H
#define OFFC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return; the numbers are the command line's exit statuses. */
enum {
  OFFC_OK = 0,
  OFFC_INFEASIBLE = 1, /* the budget cannot be met; the message names the floor and what holds it */
  OFFC_OPTIONS = 2,    /* the options are wrong */
  OFFC_MODULE = 3,     /* the module is not well formed */
  OFFC_INTERNAL = 4    /* a bug of offc's; nothing was changed */
};

/* Bytes made by this library; give them back with offc_bytes_free. `data` is NULL where there are none. Texts are UTF-8 without a zero
 * byte at the end. */
typedef struct OffcBytes {
  uint8_t *data;
  size_t size;
} OffcBytes;

/* Rewrites a module so that it fits. Options, all but `memory` optional:
 *   {"memory": "24GiB", "device": "h100-sxm", "spec": TEXT, "calibration": TEXT, "host_memory": SIZE, "link_h2d": RATE, "link_d2h": RATE,
 *    "gpus_per_node": N, "passes": "fit,dce", "best_effort": BOOL, "floor": BOOL}
 * out_module: the module in the form in which it came, none if nothing was changed. out_report: a JSON object on success. out_message: what a
 * person should read on failure. Each of the three may be NULL. */
int32_t offc_rewrite(const uint8_t *module, size_t module_size, const uint8_t *options, size_t options_size, OffcBytes *out_module,
                     OffcBytes *out_report, OffcBytes *out_message);

/* The module's memory as XLA counts it: a JSON object in out_report. */
int32_t offc_peak(const uint8_t *module, size_t module_size, OffcBytes *out_report, OffcBytes *out_message);

/* Gives bytes back; bytes that are none are fine. */
void offc_bytes_free(OffcBytes bytes);

/* The version, such as "0.1.0"; lives as long as the library. */
const char *offc_version(void);

/* Gets the report (code 0) or the message of every module that was planned, on the thread that compiles. */
typedef void (*OffcReport)(void *context, int code, const char *text, size_t size);

/* Registers the planner with a PJRT plugin (what its GetPjrtApi returns, after PJRT_Plugin_Initialize): every module it compiles from now on
 * is rewritten after scheduling. A compile never fails because of it. Returns OFFC_OPTIONS where the options are wrong or the plugin has no
 * XlaTransform extension, OFFC_INTERNAL where the plugin refuses. */
int offc_register_with_pjrt(const void *pjrt_api, const uint8_t *options, size_t options_size, OffcReport report, void *context);

#ifdef __cplusplus
}
#endif

#endif /* OFFC_H */

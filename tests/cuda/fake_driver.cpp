// A stand-in for libcuda, libnvrtc and libcublas: enough of them to run `offc run --backend cuda` without a GPU. Kernels are compiled by g++
// through shim.h. Work is queued and carried out only when somebody waits, in an order that the streams and events allow and a seed chooses, so
// that a wait that is missing shows; memory is poisoned when it is allocated and freed.
//
// Build: g++ -std=c++20 -O1 -shared -fPIC -fvisibility=hidden -DSHIM='"…/shim.h"' fake_driver.cpp -o libcuda.so.1 -ldl; libnvrtc.so and
// libcublas.so are links to it.
// Environment: OFFC_FAKE_SEED: 1 always takes the first stream that can go on, 2 the last, others choose at random.
// OFFC_FAKE_DROP=n leaves out the n-th wait of a stream for an event (from 0). OFFC_FAKE_DIR: where compiled kernels are kept.
// OFFC_FAKE_FAIL=NAME: the launch of that kernel fails. OFFC_FAKE_CLOCK=1: events carry made-up times (see `cost`).
// OFFC_FAKE_RACES=FILE: at the end all accesses are held to the order that queues, events and waits of the host give (races.h); a pair that
// none orders ends the process with status 70; the file tells, for each wait, what leaving it out would do.
// OFFC_FAKE_PCI=domain:bus:device (numbers): where the GPU is on the bus. OFFC_FAKE_MEMORY: bytes of device memory that there are.
// OFFC_FAKE_GEMM=FILE: the calls of the matrix product are appended there.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>
#include "races.h"
#define API extern "C" __attribute__((visibility("default"))) int
using P = unsigned long long;

static long setting(const char* name, long otherwise) { const char* v = getenv(name); return v ? atol(v) : otherwise; }
static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// ---- queues
struct Event { unsigned long long recorded = 0, happened = 0; double when = 0; };
// `cost` is its made-up time in milliseconds, `entry` its place in the record of races.
struct Work { std::function<int()> run; Event* event = nullptr; unsigned long long version = 0; double cost = 0, ready = 0; long entry = -1; };
struct Stream { std::deque<Work> queue; double time = 0; int number = 0; };
static std::vector<Stream*> streams;
static double host_time = 0;
static bool made_up() { static bool on = setting("OFFC_FAKE_CLOCK", 0) != 0; return on; }
static races::Record& record() { static races::Record r; return r; }
static int failed = 0;
static unsigned long long state = 0;
static unsigned long long chance() {
  static bool started = false;
  if (!started) { started = true; state = (unsigned long long)setting("OFFC_FAKE_SEED", 0); }
  unsigned long long z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
// One piece of work that may be done now; false if there is none.
static bool step() {
  std::vector<Stream*> ready;
  for (Stream* s : streams)
    if (!s->queue.empty() && (!s->queue.front().event || s->queue.front().event->happened >= s->queue.front().version)) ready.push_back(s);
  if (ready.empty()) return false;
  static long seed = setting("OFFC_FAKE_SEED", 0);
  Stream* s = seed == 1 ? ready.front() : seed == 2 ? ready.back() : ready[chance() % ready.size()];
  Work work = std::move(s->queue.front());
  s->queue.pop_front();
  s->time = std::max(s->time, work.ready) + work.cost;
  if (work.event) s->time = std::max(s->time, work.event->when);
  record().running = work.entry;
  if (work.run) if (int error = work.run()) failed = error;
  return true;
}
static int drain(Stream* s) {
  while (s ? !s->queue.empty() : true) if (!step()) break;
  if (s && !s->queue.empty()) { fprintf(stderr, "fake driver: a stream waits for what never happens\n"); return 719; }
  if (made_up()) for (Stream* each : streams) if (!s || each == s) host_time = std::max(host_time, each->time);
  record().host_waits(s ? s->number : -1);
  return failed;
}
// Made-up times: a microsecond a kernel and a nanosecond each of its threads; a nanosecond a byte to the host, half of one to the device.
static int push(void* s, std::function<int()> run, double cost = 0, std::string name = "", std::vector<races::Access> known = {}) {
  Stream* stream = (Stream*)s;
  long entry = name.empty() ? -1 : record().work(stream->number, std::move(name), std::move(known));
  stream->queue.push_back({std::move(run), nullptr, 0, made_up() ? cost : 0, host_time, entry});
  return 0;
}

// ---- memory
static std::map<char*, size_t> blocks;
static bool inside(const void* at, size_t n) {
  auto i = blocks.upper_bound((char*)at);
  if (i == blocks.begin()) return false;
  --i;
  return (char*)at + n <= i->first + i->second;
}
static size_t taken = 0;
static void* take(size_t n, bool device = false) {
  static size_t most = (size_t)setting("OFFC_FAKE_MEMORY", 1l << 40);
  if (device && taken + n > most) return nullptr;
  if (device) taken += n;
  char* p = (char*)aligned_alloc(256, (n + 255) & ~(size_t)255);
  if (p) { memset(p, 0xd5, n); blocks[p] = n; record().block(p, n); }
  return p;
}
static int give(void* p) {
  drain(nullptr);
  auto i = blocks.find((char*)p);
  if (i == blocks.end()) return 1;
  memset(p, 0xdd, i->second);  // Never given out again.
  taken -= std::min(taken, i->second);
  blocks.erase(i);
  return 0;
}
API cuMemAlloc_v2(P* p, size_t n) { *p = (P)take(n, true); return *p ? 0 : 2; }
API cuMemFree_v2(P p) { return give((void*)p); }
API cuMemHostAlloc(void** p, size_t n, unsigned) { *p = take(n); return *p ? 0 : 2; }
API cuMemFreeHost(void* p) { return give(p); }
// Memory that the caller has and the GPU is to see.
API cuMemHostRegister_v2(void* p, size_t n, unsigned) { blocks[(char*)p] = n; record().block((char*)p, n); return 0; }
API cuMemHostUnregister(void* p) { drain(nullptr); return blocks.erase((char*)p) == 1 ? 0 : 1; }
static int copy(void* to, const void* from, size_t n, void* s, double nanos, const char* name) {
  return push(s, [=] { memmove(to, from, n); return 0; }, nanos * n / 1e6, name, {{(char*)from, n, false}, {(char*)to, n, true}});
}
API cuMemcpyHtoDAsync_v2(P to, const void* from, size_t n, void* s) { return inside((void*)to, n) ? copy((void*)to, from, n, s, 0.5, "copy to device") : 1; }
API cuMemcpyDtoHAsync_v2(void* to, P from, size_t n, void* s) { return inside((void*)from, n) ? copy(to, (void*)from, n, s, 1, "copy to host") : 1; }
API cuMemcpyDtoDAsync_v2(P to, P from, size_t n, void* s) {
  return inside((void*)to, n) && inside((void*)from, n) ? copy((void*)to, (void*)from, n, s, 0.01, "copy") : 1;
}
API cuMemsetD8Async(P at, unsigned char v, size_t n, void* s) {
  return inside((void*)at, n) ? push(s, [=] { memset((void*)at, v, n); return 0; }, 0.001, "fill", {{(char*)at, n, true}}) : 1;
}

// ---- device and context
static thread_local void* current = nullptr;
API cuInit(unsigned) { return 0; }
API cuDeviceGet(int* d, int i) { *d = 0; return i == 0 ? 0 : 101; }
API cuDeviceGetCount(int* n) { *n = (int)setting("OFFC_FAKE_DEVICES", 1); return 0; }
API cuDeviceGetName(char* s, int n, int) { strncpy(s, "stand-in without a GPU", n); return 0; }
API cuDeviceGetAttribute(int* v, int what, int) {
  int at[3] = {0, 0, 0};
  if (const char* pci = getenv("OFFC_FAKE_PCI")) sscanf(pci, "%d:%d:%d", at, at + 1, at + 2);
  *v = what == 75 ? 9 : what == 76 ? 0 : what == 50 ? at[0] : what == 33 ? at[1] : what == 34 ? at[2] : 1;
  return 0;
}
API cuDevicePrimaryCtxRetain(void** c, int) { *c = (void*)8; return 0; }
API cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API cuCtxSetCurrent(void* c) { current = c; return 0; }
API cuCtxGetCurrent(void** c) { *c = current; return 0; }
API cuCtxSynchronize() { return drain(nullptr); }
API cuGetErrorName(int e, const char** s) { *s = e == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR"; return 0; }
API cuGetErrorString(int e, const char** s) { *s = e == 719 ? "unspecified launch failure" : e == 2 ? "out of memory" : "invalid argument"; return 0; }

// ---- streams and events
API cuStreamCreate(void** s, unsigned) { Stream* made = new Stream; made->number = (int)streams.size(); streams.push_back(made); *s = made; return 0; }
API cuStreamDestroy_v2(void* s) { drain((Stream*)s); std::erase(streams, (Stream*)s); delete (Stream*)s; return 0; }
API cuStreamSynchronize(void* s) { return drain((Stream*)s); }
API cuStreamWaitEvent(void* s, void* e, unsigned) {
  static long waits = 0, dropped = setting("OFFC_FAKE_DROP", -1);
  if (waits++ == dropped) return 0;
  Event* event = (Event*)e;
  ((Stream*)s)->queue.push_back({{}, event, event->recorded, 0, host_time});
  record().wait(((Stream*)s)->number, event);
  return 0;
}
API cuEventCreate(void** e, unsigned) { *e = new Event; return 0; }
API cuEventDestroy_v2(void* e) { drain(nullptr); delete (Event*)e; return 0; }
API cuEventRecord(void* e, void* s) {
  Event* event = (Event*)e;
  unsigned long long version = ++event->recorded;
  record().record(((Stream*)s)->number, event);
  return push(s, [=] { event->happened = version; event->when = made_up() ? ((Stream*)s)->time : now(); return 0; });
}
API cuEventSynchronize(void* e) {
  Event* event = (Event*)e;
  while (event->happened < event->recorded) if (!step()) return 719;
  record().host_waits_event(event);
  return failed;
}
API cuEventElapsedTime_v2(float* f, void* a, void* b) { *f = (float)(((Event*)b)->when - ((Event*)a)->when); return 0; }

// ---- modules: a binary is the path of a library
typedef int (*Launch)(const char*, unsigned, unsigned, void**);
typedef int (*Arity)(const char*);
typedef void (*Hook)(void (*)(void*, size_t, bool));
struct Module { void* library; Launch launch; Arity arity; };
static void touched(void* at, size_t n, bool write) { record().touch((char*)at, n, write); }
struct Function { Module* module; std::string name; };
API cuModuleLoadData(void** m, const void* data) {
  void* library = dlopen((const char*)data, RTLD_NOW | RTLD_LOCAL);
  if (!library) { fprintf(stderr, "fake driver: %s\n", dlerror()); return 200; }
  if (Hook hook = (Hook)dlsym(library, "offc_hook")) hook(touched);
  *m = new Module{library, (Launch)dlsym(library, "offc_launch"), (Arity)dlsym(library, "offc_arity")};
  return 0;
}
API cuModuleUnload(void*) { return 0; }
API cuModuleGetFunction(void** f, void* m, const char* name) {
  if (((Module*)m)->arity(name) < 0) return 500;
  *f = new Function{(Module*)m, name};
  return 0;
}
API cuLaunchKernel(void* f, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned, unsigned, void* s, void** p, void**) {
  Function* function = (Function*)f;
  const char* fails = getenv("OFFC_FAKE_FAIL");
  if (fails && function->name.find(fails) == 0) return 719;
  std::vector<void*> values;
  for (int i = 0; i < function->module->arity(function->name.c_str()); i++) values.push_back(*(void**)p[i]);
  return push(s, [=]() mutable {
    std::vector<void*> arguments;
    for (void*& value : values) arguments.push_back(&value);
    return function->module->launch(function->name.c_str(), gx, bx, arguments.data()) ? 0 : 719;
  }, 1e-3 + 1e-6 * gx * bx, function->name);
}

// ---- NVRTC
struct Program { std::string text, log, library; };
API nvrtcCreateProgram(void** p, const char* text, const char*, int, const char* const*, const char* const*) {
  *p = new Program{text, "", ""};
  return 0;
}
API nvrtcDestroyProgram(void** p) { delete (Program*)*p; return 0; }
API nvrtcCompileProgram(void* p, int, const char* const*) {
  Program* program = (Program*)p;
  std::ostringstream out;
  out << "#include \"" SHIM "\"\n" << program->text << "\nstatic const shim::Entry ENTRIES[] = {\n";
  const std::string mark = "extern \"C\" __global__ void __launch_bounds__(";
  for (size_t at = program->text.find(mark); at != std::string::npos;) {
    size_t next = program->text.find(mark, at + 1);
    size_t from = program->text.find(") ", at) + 2, to = program->text.find('(', from);
    std::string name = program->text.substr(from, to - from);
    bool sync = program->text.substr(at, next == std::string::npos ? next : next - at).find("__syncthreads") != std::string::npos;
    out << "{\"" << name << "\", shim::entry(" << name << "), " << sync << "},\n";
    at = next;
  }
  out << "};\n"
         "extern \"C\" __attribute__((visibility(\"default\"))) int offc_arity(const char* name) {\n"
         "  for (const shim::Entry& e : ENTRIES) if (!strcmp(e.name, name)) return (int)e.function.second;\n  return -1;\n}\n"
         "extern \"C\" __attribute__((visibility(\"default\"))) int offc_launch(const char* name, unsigned g, unsigned b, void** a) {\n"
         "  for (const shim::Entry& e : ENTRIES)\n"
         "    if (!strcmp(e.name, name)) return shim::launch(g, b, e.sync, [&] { e.function.first(a); });\n  return 0;\n}\n";
  // Compiled with the calls of a thread sanitizer, which are the record's.
  bool races = record().on;
  if (races) {
    out << "static void (*offc_touched)(void*, size_t, bool) = [](void*, size_t, bool) {};\n#define OFF __attribute__((no_sanitize(\"thread\"), visibility(\"default\")))\n"
           "extern \"C\" {\nOFF void offc_hook(void (*f)(void*, size_t, bool)) { offc_touched = f; }\nOFF void __tsan_init() {}\n"
           "OFF void __tsan_func_entry(void*) {}\nOFF void __tsan_func_exit() {}\n"
           "OFF void __tsan_read_range(void* p, size_t n) { offc_touched(p, n, false); }\n"
           "OFF void __tsan_write_range(void* p, size_t n) { offc_touched(p, n, true); }\n"
           "OFF void __tsan_vptr_update(void**, void*) {}\n";
    for (int n : {1, 2, 4, 8, 16})
      for (const char* kind : {"", "unaligned_"})
        for (const char* way : {"read", "write"})
          out << "OFF void __tsan_" << kind << way << n << "(void* p) { offc_touched(p, " << n << ", " << (way[0] == 'w') << "); }\n";
    out << "}\n";
  }
  std::string text = out.str();
  char key[32];
  snprintf(key, sizeof key, "%016zx", std::hash<std::string>{}(text));
  const char* folder = getenv("OFFC_FAKE_DIR");
  std::string base = std::string(folder ? folder : "/tmp") + "/offc-fake-" + key + (races ? "-races" : "");
  program->library = base + ".so";
  if (std::ifstream(program->library).good()) return 0;
  std::ofstream(base + ".cpp") << text;
  const std::string flags = "-std=c++20 -O1 -fPIC -fvisibility=hidden -ffp-contract=off -fwrapv -w ";
  std::string own = base + "." + std::to_string(getpid());
  std::string command = "g++ " + flags + (races ? "-fsanitize=thread " : "") + "-c " + base + ".cpp -o " + own + ".o 2> " + base + ".log && g++ -shared " + own +
                        ".o -o " + own + ".tmp 2>> " + base + ".log && mv " + own + ".tmp " + program->library + " && rm " + own + ".o";
  // The compiler must not open the stand-in.
  int status = system(("LD_LIBRARY_PATH= " + command).c_str());
  std::stringstream log;
  log << std::ifstream(base + ".log").rdbuf();
  program->log = log.str();
  return status == 0 ? 0 : 6;
}
API nvrtcGetProgramLogSize(void* p, size_t* n) { *n = ((Program*)p)->log.size() + 1; return 0; }
API nvrtcGetProgramLog(void* p, char* s) { strcpy(s, ((Program*)p)->log.c_str()); return 0; }
API nvrtcGetCUBINSize(void* p, size_t* n) { *n = ((Program*)p)->library.size() + 1; return 0; }
API nvrtcGetCUBIN(void* p, char* s) { strcpy(s, ((Program*)p)->library.c_str()); return 0; }
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int) { return "an error"; }

// ---- cuBLAS: column-major matrices, as its reference says
struct Blas { void* stream = nullptr; void* workspace = nullptr; size_t bytes = 0; int math = 0; };
static double element(const char* p, int type, long long i) {
  if (type == 0) return ((const float*)p)[i];
  if (type == 1) return ((const double*)p)[i];
  unsigned h = ((const unsigned short*)p)[i];
  if (type == 14) { unsigned w = h << 16; float f; memcpy(&f, &w, 4); return f; }
  int e = h >> 10 & 31, m = h & 1023;
  double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(m + 1024, e - 25) : ldexp(m, -24);
  return h >> 15 ? -v : v;
}
static void put(char* p, int type, long long i, double v) {
  if (type == 0) { ((float*)p)[i] = (float)v; return; }
  if (type == 1) { ((double*)p)[i] = v; return; }
  float f = (float)v;
  unsigned w;
  memcpy(&w, &f, 4);
  if (type == 14) { ((unsigned short*)p)[i] = f != f ? 0x7fc0 : (unsigned short)((w + 0x7fff + (w >> 16 & 1)) >> 16); return; }
  _Float16 h = (_Float16)f;
  memcpy(p + 2 * i, &h, 2);
}
API cublasCreate_v2(void** h) { if (getenv("OFFC_FAKE_NO_CUBLAS")) return 1; *h = new Blas; return 0; }
API cublasDestroy_v2(void* h) { delete (Blas*)h; return 0; }
API cublasSetStream_v2(void* h, void* s) { ((Blas*)h)->stream = s; ((Blas*)h)->workspace = nullptr; return 0; }
API cublasSetWorkspace_v2(void* h, void* p, size_t n) {
  if (!inside(p, n)) return 7;
  ((Blas*)h)->workspace = p, ((Blas*)h)->bytes = n;
  return 0;
}
API cublasSetMathMode(void* h, int mode) { ((Blas*)h)->math = mode; return 0; }
extern "C" __attribute__((visibility("default"))) const char* cublasGetStatusString(int) { return "a status"; }
API cublasGemmStridedBatchedEx(void* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int at, int lda, long long sa,
                               const void* b, int bt, int ldb, long long sb, const void* beta, void* c, int ct, int ldc, long long sc, int batch,
                               int compute, int) {
  Blas* blas = (Blas*)handle;
  if (!blas->workspace || (ta | tb) > 1 || m <= 0 || n <= 0 || k <= 0 || batch <= 0) return 7;
  if (lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m || at != bt) return 7;
  bool wide = at == 1;
  if (compute != (wide ? 70 : 68) && compute != 77) return 15;
  if (ct != at && !(ct == 0 && (at == 2 || at == 14))) return 15;
  static const std::map<int, int> width = {{0, 4}, {1, 8}, {2, 2}, {14, 2}};
  if (!width.count(at) || !width.count(ct)) return 15;
  auto extent = [&](int type, int ld, long long stride, int rows, int columns) {
    return (size_t)(stride * (batch - 1) + (long long)ld * (columns - 1) + rows) * width.at(type);
  };
  size_t na = extent(at, lda, sa, ta ? k : m, ta ? m : k), nb = extent(bt, ldb, sb, tb ? n : k, tb ? k : n), nc = extent(ct, ldc, sc, m, n);
  if (!inside(a, na) || !inside(b, nb) || !inside(c, nc)) return 7;
  double x = wide ? *(const double*)alpha : *(const float*)alpha, y = wide ? *(const double*)beta : *(const float*)beta;
  if (const char* file = getenv("OFFC_FAKE_GEMM"))
    std::ofstream(file, std::ios::app) << "gemm " << (ta ? 'T' : 'N') << (tb ? 'T' : 'N') << ' ' << m << 'x' << n << 'x' << k << " batch " << batch
                                       << " types " << at << ' ' << ct << " compute " << compute << " math " << blas->math << " beta " << y << '\n';
  auto run = [=] {
    for (long long i = 0; i < batch; i++)
      for (long long column = 0; column < n; column++)
        for (long long row = 0; row < m; row++) {
          float narrow = 0;
          double sum = 0;
          for (long long d = 0; d < k; d++) {
            double p = element((const char*)a, at, i * sa + (ta ? d + row * lda : row + d * lda));
            double q = element((const char*)b, bt, i * sb + (tb ? column + d * ldb : d + column * ldb));
            if (wide) sum += p * q; else narrow = narrow + (float)p * (float)q;
          }
          long long at_c = i * sc + row + column * ldc;
          double result = x * (wide ? sum : narrow);
          if (y != 0) result += y * element((const char*)c, ct, at_c);
          put((char*)c, ct, at_c, result);
        }
    return 0;
  };
  // The workspace is written too.
  return push(blas->stream, run, 1e-3 + 1e-6 * m * n, "gemm",
              {{(char*)a, na, false}, {(char*)b, nb, false}, {(char*)c, nc, true}, {(char*)blas->workspace, blas->bytes, true}});
}

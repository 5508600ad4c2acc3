// A stand-in for libcuda and libnvrtc: enough of them to run `offc run --backend cuda` without a GPU. Kernels are compiled by g++ through
// shim.h. Work is queued and carried out only when somebody waits, in an order that the streams and events allow and a seed chooses, so
// that a wait that is missing shows; memory is poisoned when it is allocated and freed.
//
// Build: g++ -std=c++20 -O1 -shared -fPIC -fvisibility=hidden -DSHIM='"…/shim.h"' fake_driver.cpp -o libcuda.so.1 -ldl; libnvrtc.so is a link to it.
// Environment: OFFC_FAKE_SEED: 1 always takes the first stream that can go on, 2 the last, others choose at random.
// OFFC_FAKE_DROP=n leaves out the n-th wait of a stream for an event (from 0). OFFC_FAKE_DIR: where compiled kernels are kept.
// OFFC_FAKE_FAIL=NAME: the launch of that kernel fails.
#include <chrono>
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
#include <vector>
#define API extern "C" __attribute__((visibility("default"))) int
using P = unsigned long long;

static long setting(const char* name, long otherwise) { const char* v = getenv(name); return v ? atol(v) : otherwise; }
static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// ---- queues
struct Event { unsigned long long recorded = 0, happened = 0; double when = 0; };
struct Work { std::function<int()> run; Event* event = nullptr; unsigned long long version = 0; };
struct Stream { std::deque<Work> queue; };
static std::vector<Stream*> streams;
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
  if (work.run) if (int error = work.run()) failed = error;
  return true;
}
static int drain(Stream* s) {
  while (s ? !s->queue.empty() : true) if (!step()) break;
  if (s && !s->queue.empty()) { fprintf(stderr, "fake driver: a stream waits for what never happens\n"); return 719; }
  return failed;
}
static int push(void* s, std::function<int()> run) { ((Stream*)s)->queue.push_back({std::move(run)}); return 0; }

// ---- memory
static std::map<char*, size_t> blocks;
static bool inside(const void* at, size_t n) {
  auto i = blocks.upper_bound((char*)at);
  if (i == blocks.begin()) return false;
  --i;
  return (char*)at + n <= i->first + i->second;
}
static void* take(size_t n) {
  char* p = (char*)aligned_alloc(256, (n + 255) & ~(size_t)255);
  if (p) { memset(p, 0xd5, n); blocks[p] = n; }
  return p;
}
static int give(void* p) {
  drain(nullptr);
  auto i = blocks.find((char*)p);
  if (i == blocks.end()) return 1;
  memset(p, 0xdd, i->second);  // Never given out again.
  blocks.erase(i);
  return 0;
}
API cuMemAlloc_v2(P* p, size_t n) { *p = (P)take(n); return *p ? 0 : 2; }
API cuMemFree_v2(P p) { return give((void*)p); }
API cuMemHostAlloc(void** p, size_t n, unsigned) { *p = take(n); return *p ? 0 : 2; }
API cuMemFreeHost(void* p) { return give(p); }
static int copy(void* to, const void* from, size_t n, void* s) {
  return push(s, [=] { memmove(to, from, n); return 0; });
}
API cuMemcpyHtoDAsync_v2(P to, const void* from, size_t n, void* s) { return inside((void*)to, n) ? copy((void*)to, from, n, s) : 1; }
API cuMemcpyDtoHAsync_v2(void* to, P from, size_t n, void* s) { return inside((void*)from, n) ? copy(to, (void*)from, n, s) : 1; }
API cuMemcpyDtoDAsync_v2(P to, P from, size_t n, void* s) {
  return inside((void*)to, n) && inside((void*)from, n) ? copy((void*)to, (void*)from, n, s) : 1;
}
API cuMemsetD8Async(P at, unsigned char v, size_t n, void* s) {
  return inside((void*)at, n) ? push(s, [=] { memset((void*)at, v, n); return 0; }) : 1;
}

// ---- device and context
static thread_local void* current = nullptr;
API cuInit(unsigned) { return 0; }
API cuDeviceGet(int* d, int i) { *d = 0; return i == 0 ? 0 : 101; }
API cuDeviceGetCount(int* n) { *n = (int)setting("OFFC_FAKE_DEVICES", 1); return 0; }
API cuDeviceGetName(char* s, int n, int) { strncpy(s, "stand-in without a GPU", n); return 0; }
API cuDeviceGetAttribute(int* v, int what, int) { *v = what == 75 ? 9 : what == 76 ? 0 : 1; return 0; }
API cuDevicePrimaryCtxRetain(void** c, int) { *c = (void*)8; return 0; }
API cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API cuCtxSetCurrent(void* c) { current = c; return 0; }
API cuCtxGetCurrent(void** c) { *c = current; return 0; }
API cuCtxSynchronize() { return drain(nullptr); }
API cuGetErrorName(int e, const char** s) { *s = e == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR"; return 0; }
API cuGetErrorString(int e, const char** s) { *s = e == 719 ? "unspecified launch failure" : e == 2 ? "out of memory" : "invalid argument"; return 0; }

// ---- streams and events
API cuStreamCreate(void** s, unsigned) { Stream* made = new Stream; streams.push_back(made); *s = made; return 0; }
API cuStreamDestroy_v2(void* s) { drain((Stream*)s); std::erase(streams, (Stream*)s); delete (Stream*)s; return 0; }
API cuStreamSynchronize(void* s) { return drain((Stream*)s); }
API cuStreamWaitEvent(void* s, void* e, unsigned) {
  static long waits = 0, dropped = setting("OFFC_FAKE_DROP", -1);
  if (waits++ == dropped) return 0;
  Event* event = (Event*)e;
  ((Stream*)s)->queue.push_back({{}, event, event->recorded});
  return 0;
}
API cuEventCreate(void** e, unsigned) { *e = new Event; return 0; }
API cuEventDestroy_v2(void* e) { drain(nullptr); delete (Event*)e; return 0; }
API cuEventRecord(void* e, void* s) {
  Event* event = (Event*)e;
  unsigned long long version = ++event->recorded;
  return push(s, [=] { event->happened = version; event->when = now(); return 0; });
}
API cuEventSynchronize(void* e) { Event* event = (Event*)e; while (event->happened < event->recorded) if (!step()) return 719; return failed; }
API cuEventElapsedTime_v2(float* f, void* a, void* b) { *f = (float)(((Event*)b)->when - ((Event*)a)->when); return 0; }

// ---- modules: a binary is the path of a library
typedef int (*Launch)(const char*, unsigned, unsigned, void**);
typedef int (*Arity)(const char*);
struct Module { void* library; Launch launch; Arity arity; };
struct Function { Module* module; std::string name; };
API cuModuleLoadData(void** m, const void* data) {
  void* library = dlopen((const char*)data, RTLD_NOW | RTLD_LOCAL);
  if (!library) { fprintf(stderr, "fake driver: %s\n", dlerror()); return 200; }
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
  });
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
  std::string text = out.str();
  char key[32];
  snprintf(key, sizeof key, "%016zx", std::hash<std::string>{}(text));
  const char* folder = getenv("OFFC_FAKE_DIR");
  std::string base = std::string(folder ? folder : "/tmp") + "/offc-fake-" + key;
  program->library = base + ".so";
  if (std::ifstream(program->library).good()) return 0;
  std::ofstream(base + ".cpp") << text;
  std::string command = "g++ -std=c++20 -O1 -shared -fPIC -fvisibility=hidden -ffp-contract=off -fwrapv -w " + base + ".cpp -o " + base + ".tmp 2> " +
                        base + ".log && mv " + base + ".tmp " + program->library;
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

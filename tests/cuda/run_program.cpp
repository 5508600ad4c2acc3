// Runs whole programs on given memory: their steps one after the other, as one stream would. The file is compiled behind the kernels and a table
// `ENTRIES` of them. Numbers are 64 bits. Input: number of cases; a case: sizes of the device arena, the host arena and three scratch
// memories; number of writes, each: memory, offset, size, bytes; steps; number of reads, each: memory, offset, size. Steps: their number,
// each: 0 a launch (length and letters of the name, grid, block, number of arguments, each memory and offset), 1 a copy (memory, offset,
// memory, offset, size), 2 a loop (steps, memory and offset of the condition, steps), 3 a choice (memory, offset, size, number of branches, steps).
// Output: the bytes of all reads. What a kernel writes beside its memory is an error.
static std::vector<char> input;
static size_t at = 0;
static unsigned long long number() { unsigned long long x; memcpy(&x, &input[at], 8); at += 8; return x; }
static const size_t guard = 256;
static std::vector<char*> memory;
static std::vector<size_t> sizes;
static char* address() { char* base = memory[number()] + guard; return base + number(); }

static void run(bool go);
static void one(bool go) {
  switch (number()) {
    case 0: {
      size_t length = number();
      std::string name(&input[at], length);
      at += length;
      unsigned grid = number(), block = number();
      std::vector<void*> pointers, arguments;
      for (unsigned long long k = number(); k > 0; k--) pointers.push_back(address());
      if (!go) return;
      for (void*& pointer : pointers) arguments.push_back(&pointer);
      bool found = false;
      for (const shim::Entry& entry : ENTRIES) {
        if (name != entry.name) continue;
        found = true;
        if (!shim::launch(grid, block, entry.sync, [&] { entry.function.first(arguments.data()); })) {
          fprintf(stderr, "%s: some threads wait at a barrier that others do not reach\n", entry.name);
          exit(1);
        }
      }
      if (!found) { fprintf(stderr, "no kernel %s\n", name.c_str()); exit(1); }
      for (size_t m = 0; m < memory.size(); m++)
        for (size_t i = 0; i < guard; i++)
          if (memory[m][i] != 0x5a || memory[m][guard + sizes[m] + i] != 0x5a) { fprintf(stderr, "%s writes beside memory %zu\n", name.c_str(), m); exit(1); }
      return;
    }
    case 1: {
      char *from = address(), *to = address();
      size_t size = number();
      if (go) memmove(to, from, size);
      return;
    }
    case 2: {
      for (size_t start = at;;) {
        at = start;
        run(go);
        char* condition = address();
        bool again = go && *condition;
        run(again);
        if (!again) return;
      }
    }
    default: {
      char* choice = address();
      size_t size = number(), count = number(), taken = count - 1;
      int index = 0;
      if (go && size == 1) taken = *choice ? 0 : 1;
      if (go && size == 4) { memcpy(&index, choice, 4); if (index >= 0 && (size_t)index < count) taken = index; }
      for (size_t b = 0; b < count; b++) run(go && b == taken);
    }
  }
}
static void run(bool go) { for (unsigned long long n = number(); n > 0; n--) one(go); }

int main(int count, char** args) {
  if (count < 3) return 2;
  shim::seed = count > 3 ? (unsigned)atoi(args[3]) : 0;
  FILE* file = fopen(args[1], "rb");
  if (!file) return 2;
  fseek(file, 0, SEEK_END);
  input.resize(ftell(file));
  rewind(file);
  if (fread(input.data(), 1, input.size(), file) != input.size()) return 2;
  fclose(file);
  FILE* out = fopen(args[2], "wb");
  for (unsigned long long cases = number(); cases > 0; cases--) {
    memory.clear();
    sizes.clear();
    for (int m = 0; m < 5; m++) {
      size_t size = number();
      char* block = (char*)aligned_alloc(256, (size + 2 * guard + 255) & ~(size_t)255);
      memset(block, 0x5a, size + 2 * guard);
      memset(block + guard, 0xcb, size);
      memory.push_back(block);
      sizes.push_back(size);
    }
    for (unsigned long long n = number(); n > 0; n--) {
      char* to = address();
      size_t size = number();
      memcpy(to, &input[at], size);
      at += size;
    }
    run(true);
    for (unsigned long long n = number(); n > 0; n--) { char* from = address(); fwrite(from, 1, number(), out); }
    for (char* block : memory) free(block);
  }
  fclose(out);
  return 0;
}

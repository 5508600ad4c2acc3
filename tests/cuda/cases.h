// What the programs that run kernels share: their input (numbers of 64 bits), memories between guards, and launches by name.
static std::vector<char> input;
static size_t at = 0;
static unsigned long long number() { unsigned long long x; memcpy(&x, &input[at], 8); at += 8; return x; }
static std::string letters() { size_t length = number(); at += length; return std::string(&input[at - length], length); }

static bool read_input(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) return false;
  fseek(file, 0, SEEK_END);
  input.resize(ftell(file));
  rewind(file);
  bool whole = fread(input.data(), 1, input.size(), file) == input.size();
  fclose(file);
  return whole;
}

static const size_t guard = 256;
static std::vector<char*> memory;
static std::vector<size_t> sizes;

// A further memory, all of one byte; returns where it starts.
static char* add_memory(size_t size) {
  char* block = (char*)aligned_alloc(256, (size + 2 * guard + 255) & ~(size_t)255);
  memset(block, 0x5a, size + 2 * guard);
  memset(block + guard, 0xcb, size);
  memory.push_back(block);
  sizes.push_back(size);
  return block + guard;
}
static void free_memory() {
  for (char* block : memory) free(block);
  memory.clear();
  sizes.clear();
}

// Runs a kernel; ends the program where there is none, where its threads part at a barrier, or where it writes beside a memory.
static void launch(const std::string& name, unsigned grid, unsigned block, std::vector<void*>& pointers) {
  std::vector<void*> arguments;
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
}

// A client in C++: two threads rewrite at once and get the same bytes. Usage: client MODULE MEMORY
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "../offc.h"

namespace {

struct Owned {
  OffcBytes bytes{nullptr, 0};
  ~Owned() { offc_bytes_free(bytes); }
  std::string text() const { return bytes.data ? std::string(reinterpret_cast<char*>(bytes.data), bytes.size) : std::string(); }
};

std::string rewrite(const std::string& module, const std::string& options) {
  Owned out, report, message;
  const auto* data = reinterpret_cast<const uint8_t*>(module.data());
  const auto* text = reinterpret_cast<const uint8_t*>(options.data());
  const int32_t code = offc_rewrite(data, module.size(), text, options.size(), &out.bytes, &report.bytes, &message.bytes);
  return code == OFFC_OK ? out.text() : "failed: " + message.text();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: client MODULE MEMORY\n"), 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::string module{std::istreambuf_iterator<char>(file), {}};
  const std::string options = R"({"memory": ")" + std::string(argv[2]) + R"(", "device": "h100-sxm"})";
  std::vector<std::string> results(2);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = rewrite(module, options); });
  for (auto& thread : threads) thread.join();
  const bool same = results[0] == results[1] && results[0].size() > 1000;
  std::printf("%s  two threads, the same %zu bytes\n", same ? "ok  " : "FAIL", results[0].size());
  return same ? 0 : 1;
}

/* A client in C: rewrites a module, and every kind of trouble. Usage: client MODULE MEMORY */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../offc.h"

static int failures = 0;

static void expect(int ok, const char *what) {
  printf("%s  %s\n", ok ? "ok  " : "FAIL", what);
  if (!ok) failures++;
}

static int has(OffcBytes text, const char *part) {
  size_t n = strlen(part);
  for (size_t i = 0; text.data && i + n <= text.size; i++)
    if (memcmp(text.data + i, part, n) == 0) return 1;
  return 0;
}

static int32_t rewrite(const uint8_t *module, size_t size, const char *options, OffcBytes *out, OffcBytes *report, OffcBytes *message) {
  return offc_rewrite(module, size, (const uint8_t *)options, strlen(options), out, report, message);
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: client MODULE MEMORY\n"), 2;
  FILE *file = fopen(argv[1], "rb");
  if (!file) return perror(argv[1]), 2;
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  uint8_t *module = malloc(size);
  if (fread(module, 1, size, file) != size) return perror(argv[1]), 2;
  fclose(file);

  char options[256];
  snprintf(options, sizeof options, "{\"memory\": \"%s\", \"device\": \"h100-sxm\"}", argv[2]);
  OffcBytes out, report, message, again;
  expect(strlen(offc_version()) >= 5, "a version");
  expect(rewrite(module, size, options, &out, &report, &message) == OFFC_OK, "the module is rewritten");
  expect(out.size > 0 && has(report, "\"fits\":true") && message.data == NULL, "it fits, with a report and no message");
  expect(rewrite(module, size, options, &again, NULL, NULL) == OFFC_OK, "outputs may be null");
  expect(again.size == out.size && memcmp(again.data, out.data, out.size) == 0, "the same bytes again");
  offc_bytes_free(again);
  offc_bytes_free(report);
  expect(offc_peak(out.data, out.size, &report, &message) == OFFC_OK && has(report, "\"temp\":"), "the result's figures");
  offc_bytes_free(report);
  offc_bytes_free(out);

  expect(rewrite(module, size, "{\"memory\": \"1000GiB\"}", &out, &report, &message) == OFFC_OK && out.data == NULL, "what fits stays as it is");
  offc_bytes_free(report);
  expect(rewrite(module, size, "{\"memory\": 1}", &out, &report, &message) == OFFC_INFEASIBLE && has(message, "lowest peak"), "no budget: the floor");
  offc_bytes_free(message);
  expect(rewrite(module, size, "{\"memory\": 1, \"best_effort\": true}", &out, &report, &message) == OFFC_OK && has(report, "\"fits\":false"), "best effort");
  offc_bytes_free(out);
  offc_bytes_free(report);
  expect(rewrite(module, size, "{\"memroy\": 1}", &out, &report, &message) == OFFC_OPTIONS && has(message, "memroy"), "wrong options");
  offc_bytes_free(message);
  expect(rewrite((const uint8_t *)"HloModule", 9, options, &out, &report, &message) == OFFC_MODULE, "no module");
  offc_bytes_free(message);
  expect(rewrite(NULL, 0, options, NULL, NULL, NULL) == OFFC_MODULE, "null pointers");
  expect(offc_register_with_pjrt(NULL, (const uint8_t *)options, strlen(options), NULL, NULL) == OFFC_OPTIONS, "no plugin");
  free(module);
  return failures != 0;
}

// load_bench WAY MODEL DTYPE THREADS: seconds of one way to load a model folder's weights, as a
// JSON line. WAY: load (lft's loader, onto the device it would train on), read (the files' bytes
// into one buffer, with as many threads), reread (the same into one reused buffer per thread),
// look (the checks of the base's values that train and check run at start-up). DTYPE: bf16,
// fp16 or fp32. THREADS: 0 for the default number of loading threads.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>

#include "src/base/errors.h"
#include "src/hf/fill_weights.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"
#include "src/train/weights/odd_weights.h"

namespace lft {
using namespace lft::hf;
using namespace lft::io;
using namespace lft::family;
using namespace lft::family;
using namespace lft::train;
namespace {

constexpr uint64_t kPiece = 4 << 20;

struct FilePiece {
  const FileHandle* file;
  uint64_t offset, bytes;
};

void read_files(const ModelDir& dir, unsigned threads, bool keep) {
  std::vector<FileHandle> files;
  for (const SafetensorsFile& file : dir.files)
    files.push_back(FileHandle::open_to_read(file.path()));
  std::vector<FilePiece> pieces;
  for (const FileHandle& file : files) {
    for (uint64_t offset = 0; offset < file.size(); offset += kPiece)
      pieces.push_back({&file, offset, std::min(kPiece, file.size() - offset)});
  }
  const auto all = std::make_unique_for_overwrite<char[]>(keep ? pieces.size() * kPiece : 1);
  std::atomic<size_t> next{0};
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < threads; ++i) {
    pool.emplace_back([&] {
      const auto own = std::make_unique_for_overwrite<char[]>(kPiece);
      for (size_t at = next++; at < pieces.size(); at = next++) {
        pieces[at].file->read_at(pieces[at].offset, keep ? all.get() + at * kPiece : own.get(),
                                 pieces[at].bytes);
      }
    });
  }
}

int bench(const std::string& way, const std::string& path, const std::string& dtype,
          unsigned threads) {
  const at::Device device = default_device();
  const auto start = std::chrono::steady_clock::now();
  const ModelDir dir = ModelDir::open(path);
  uint64_t bytes = 0;
  for (const SafetensorsFile& file : dir.files) {
    for (const auto& [name, info] : file.tensors()) bytes += info.bytes;
  }
  if (threads == 0) threads = fill_threads(bytes);
  Model model{nullptr};
  if (way == "load") {
    model = load_model(dir, compute_type(dtype), device);
  } else if (way == "look") {
    sampled_suspicions(dir);
  } else {
    read_files(dir, threads, way == "read");
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf(
      "{\"way\": \"%s\", \"device\": \"%s\", \"threads\": %u, \"bytes\": %llu, \"seconds\": "
      "%.4f}\n",
      way.c_str(), device.str().c_str(), threads, static_cast<unsigned long long>(bytes), seconds);
  std::fflush(stdout);
  return 0;
}

}  // namespace
}  // namespace lft

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: load_bench load|read|reread|look MODEL bf16|fp16|fp32 THREADS\n");
    return 2;
  }
  try {
    return lft::bench(argv[1], argv[2], argv[3], static_cast<unsigned>(std::atoi(argv[4])));
  } catch (const lft::Error& error) {
    std::fprintf(stderr, "%s\n", lft::format_error(error).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

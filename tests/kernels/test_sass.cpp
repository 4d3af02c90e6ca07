// The machine code of the kernels, as shown by cuobjdump: kernels that mostly move memory do so
// 128 bits at a time.
#include <gtest/gtest.h>

#if defined(LFT_KERNELS_FILE) && defined(LFT_CUOBJDUMP)
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

/// Minimum per instantiation: one instruction per array that it reads or writes (of
/// 16-bit elements; float32 may need two). A generic load (LD, not LDG) does not count: it
/// determines the address space at run time.
struct Expected {
  const char* kernel;  // the .cu file and its kernel
  int instantiations;  // dtypes and forms
  int loads, stores;
};
constexpr Expected kKernels[] = {
    // Three dtypes of gradients in one: 3 x (param, m, v), and a gradient of float32.
    {"adamw adamw_kernel", 1, 10, 9},
    // The same with two rows of param; 8-bit moments: a lane's 4 adjoin the next lane's.
    {"adamw8 adamw8_kernel", 1, 8, 6},
    // One channel a thread: 32 adjacent elements a warp.
    {"causal_conv backward_kernel", 3, 0, 0},
    {"causal_conv forward_kernel", 3, 0, 0},
    {"causal_conv weight_kernel", 1, 0, 0},
    {"dropout dropout_kernel<add>", 3, 2, 1},
    {"dropout dropout_kernel<set>", 3, 1, 1},
    // The row twice; the codes of 8 elements are 64 bits, adjacent to the next lane's.
    {"fp8 quantize_kernel", 3, 2, 0},
    // These compute: what they move is a small part of their time.
    {"gated_delta forward_kernel", 3, 0, 0},
    {"gated_delta length_kernel", 3, 0, 0},
    {"gated_delta local_kernel", 3, 0, 0},
    {"gated_delta reverse_kernel", 3, 0, 0},
    // Three dtypes in one, four loads at a time and the rest; it stores when it unscales.
    {"grad_stats grad_stats_kernel", 1, 15, 15},
    {"grad_stats reduce_kernel", 1, 0, 0},
    // The codes of 8 elements are 32 bits, adjacent to the next lane's.
    {"nf4 dequantize_kernel", 3, 0, 1},
    // Two adjacent weights per lane, at any alignment.
    {"nf4 quantize_kernel", 3, 0, 0},
    {"quick_gelu backward_kernel", 3, 2, 1},
    {"quick_gelu forward_kernel", 3, 1, 1},
    {"rms_norm backward_any_kernel", 15, 7, 1},  // x, w and dy twice, dsum
    {"rms_norm backward_kernel", 15, 8, 2},      // two packs of x, w, dy, dsum
    {"rms_norm forward_any_kernel", 15, 4, 2},   // x, delta; the sum again, w
    {"rms_norm forward_kernel", 15, 6, 4},       // two packs of x, delta, w
    // Both halves of x's heads, four per thread or two of float32; cos and sin, in float32. In
    // 32-bit and in 64-bit arithmetic.
    {"rope rope_kernel", 6, 12, 8},
    {"swiglu backward_kernel", 3, 3, 3},
    {"swiglu dropout_kernel", 3, 2, 2},
    {"swiglu forward_kernel", 3, 2, 1},
    {"token_logprob any_kernel", 3, 10, 5},  // the row twice, four loads at a time and the rest
    {"token_logprob held_kernel", 6, 8, 8},  // with 512 threads and with 1024
};

struct Found {
  std::string kernel, arguments;  // as in Expected; its template arguments
  std::string architecture;       // "sm_90"
  int loads = 0, stores = 0;
};

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

/// _ZN3lft43_GLOBAL__N__74676928_10_dropout_cu_a796b58a14dropout_kernelI6__halfLb1EE...: file
/// "dropout", kernel "dropout_kernel<add>", arguments "<__half, true>".
Found named(const std::string& symbol, const std::string& architecture) {
  static const std::regex in_file("_GLOBAL__N__[0-9a-f]+_[0-9]+_(\\w+)_cu_");
  static const std::regex parts("::(\\w+)(<[^(]*>)?\\(");
  std::smatch file, name;
  const std::string text = demangled(symbol);
  const bool known =
      std::regex_search(symbol, file, in_file) && std::regex_search(text, name, parts);
  if (!known) return {symbol, "", architecture};
  Found found{file[1].str() + " " + name[1].str(), name[2].str(), architecture};
  if (found.kernel == "dropout dropout_kernel") {
    const bool adds = found.arguments.find("true") != std::string::npos;
    found.kernel += adds ? "<add>" : "<set>";
  }
  return found;
}

bool has(const std::string& line, const char* text) { return line.find(text) != std::string::npos; }

/// Empty if the program fails.
std::vector<Found> disassembled() {
  const std::string program = std::string("'") + LFT_CUOBJDUMP + "'";
  const std::string command = program + " --dump-sass '" + LFT_KERNELS_FILE + "' 2>/dev/null";
  std::vector<Found> found;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return found;
  const std::regex architecture("arch = (sm_\\w+)"), function("Function : (\\S+)");
  std::string at;
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
    const std::string line = buffer;
    std::smatch match;
    if (has(line, "arch = ") && std::regex_search(line, match, architecture)) at = match[1];
    if (has(line, "Function : ") && std::regex_search(line, match, function)) {
      found.push_back(named(match[1], at));
    }
    if (found.empty() || !has(line, ".128")) continue;
    found.back().loads += has(line, " LDG.");
    found.back().stores += has(line, " STG.");
  }
  return pclose(pipe) == 0 ? found : std::vector<Found>();
}

/// The entries of LFT_CUDA_ARCHITECTURES with machine code: "75-real,80-real,90".
std::set<std::string> wanted_architectures() {
  std::set<std::string> wanted;
  std::stringstream list(LFT_CUDA_ARCHITECTURES);
  for (std::string item; std::getline(list, item, ',');) {
    if (!has(item, "virtual")) wanted.insert("sm_" + item.substr(0, item.find('-')));
  }
  return wanted;
}

const Expected* row_of(const std::string& kernel) {
  for (const Expected& row : kKernels) {
    if (row.kernel == kernel) return &row;
  }
  return nullptr;
}

TEST(KernelSass, EveryKernelMoves128BitsAtATimeInEveryType) {
  if (std::string(LFT_CUOBJDUMP).empty()) {
    GTEST_SKIP()
        << "no cuobjdump to show the kernels' machine code (CUDA's toolkit and triton have it)";
  }
  const std::vector<Found> all = disassembled();
  ASSERT_FALSE(all.empty()) << LFT_CUOBJDUMP << " shows no kernel of " << LFT_KERNELS_FILE;
  std::map<std::string, std::set<std::string>> arguments;  // per architecture and kernel
  for (const Found& found : all) {
    const std::string where = found.kernel + found.arguments + " on " + found.architecture;
    const Expected* row = row_of(found.kernel);
    if (row == nullptr) {
      ADD_FAILURE() << where << " has no line in the table";
      continue;
    }
    arguments[found.architecture + " " + found.kernel].insert(found.arguments);
    EXPECT_GE(found.loads, row->loads) << where;
    EXPECT_GE(found.stores, row->stores) << where;
  }
  const std::set<std::string> wanted = wanted_architectures();
  ASSERT_FALSE(wanted.empty());
  for (const std::string& architecture : wanted) {
    for (const Expected& row : kKernels) {
      const std::string key = architecture + " " + row.kernel;
      EXPECT_EQ(static_cast<int>(arguments[key].size()), row.instantiations) << key;
    }
  }
}

}  // namespace
#endif

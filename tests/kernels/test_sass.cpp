// The machine code of the kernels: those that move memory and little else do it 128 bits at a time. Of what nvcc made of every kernel of
// the library, as cuobjdump shows it.
#include <gtest/gtest.h>

#if defined(LFT_KERNELS_FILE) && defined(LFT_CUOBJDUMP)
#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

/// What each instantiation has at least: one instruction an array that it reads or writes (of 16-bit elements; float32 may take two).
/// A generic load (LD, not LDG) does not count: it has to find out at run time where its address lies.
struct Expected {
  const char* kernel;  // the .cu file, and the kernel in it
  int instantiations;  // dtypes and forms
  int loads, stores;
};
constexpr Expected kKernels[] = {
    {"adamw adamw_kernel", 1, 10, 9},    // three dtypes of gradients in one: 3 x (param, m, v), and a gradient of float32
    {"adamw8 adamw8_kernel", 1, 8, 6},   // of two rows; 8-bit moments: 4 codes a lane, which a warp writes side by side
    {"dropout dropout_kernel<add>", 3, 2, 1},
    {"dropout dropout_kernel<set>", 3, 1, 1},
    {"fp8 quantize_kernel", 3, 2, 0},      // the row twice; the codes of 8 elements are 64 bits, side by side over the warp
    {"grad_stats grad_stats_kernel", 1, 3, 3},  // three dtypes in one; stores where it unscales
    {"nf4 dequantize_kernel", 3, 0, 1},    // the codes of 8 elements are 32 bits, side by side over the warp
    {"quick_gelu backward_kernel", 3, 2, 1},
    {"quick_gelu forward_kernel", 3, 1, 1},
    {"rms_norm backward_kernel", 15, 7, 1},  // x, w and dy twice, dsum
    {"rms_norm forward_kernel", 15, 4, 2},   // x, delta; the sum again, w
    {"rope rope_kernel", 3, 6, 2},
    {"swiglu backward_kernel", 3, 3, 2},
    {"swiglu dropout_kernel", 3, 2, 2},
    {"swiglu forward_kernel", 3, 2, 1},
    {"token_logprob token_logprob_kernel", 3, 2, 1},  // the row twice
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

/// _ZN3lft43_GLOBAL__N__74676928_10_dropout_cu_a796b58a14dropout_kernelI6__halfLb1EE...: the file "dropout", the kernel
/// "dropout_kernel<add>", the arguments "<__half, true>".
Found named(const std::string& symbol, const std::string& architecture) {
  static const std::regex in_file("_GLOBAL__N__[0-9a-f]+_[0-9]+_(\\w+)_cu_"), parts("::(\\w+)(<[^(]*>)?\\(");
  std::smatch file, name;
  const std::string text = demangled(symbol);
  if (!std::regex_search(symbol, file, in_file) || !std::regex_search(text, name, parts)) return {symbol, "", architecture};
  Found found{file[1].str() + " " + name[1].str(), name[2].str(), architecture};
  if (found.kernel == "dropout dropout_kernel") {
    found.kernel += found.arguments.find("true") != std::string::npos ? "<add>" : "<set>";
  }
  return found;
}

std::vector<Found> disassembled() {
  const std::string command = std::string("'") + LFT_CUOBJDUMP + "' --dump-sass '" + LFT_KERNELS_FILE + "' 2>/dev/null";
  std::vector<Found> found;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return found;
  const std::regex architecture("arch = (sm_\\w+)"), function("Function : (\\S+)");
  std::string at;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    const std::string text = line;
    std::smatch match;
    if (text.find("arch = ") != std::string::npos && std::regex_search(text, match, architecture)) at = match[1];
    if (text.find("Function : ") != std::string::npos && std::regex_search(text, match, function)) found.push_back(named(match[1], at));
    if (found.empty() || text.find(".128") == std::string::npos) continue;
    found.back().loads += text.find(" LDG.") != std::string::npos;
    found.back().stores += text.find(" STG.") != std::string::npos;
  }
  return pclose(pipe) == 0 ? found : std::vector<Found>();
}

/// Of LFT_CUDA_ARCHITECTURES those that machine code is made for: "75-real;80-real;90".
std::set<std::string> wanted_architectures() {
  std::set<std::string> wanted;
  std::stringstream list(LFT_CUDA_ARCHITECTURES);
  for (std::string item; std::getline(list, item, ',');) {
    if (item.find("virtual") == std::string::npos) wanted.insert("sm_" + item.substr(0, item.find('-')));
  }
  return wanted;
}

TEST(KernelSass, EveryKernelMoves128BitsAtATimeInEveryType) {
  if (std::string(LFT_CUOBJDUMP).empty()) {
    GTEST_SKIP() << "no cuobjdump (it comes with CUDA's toolkit and with triton): the kernels' machine code is not looked at";
  }
  const std::vector<Found> all = disassembled();
  ASSERT_FALSE(all.empty()) << LFT_CUOBJDUMP << " shows no kernel of " << LFT_KERNELS_FILE;
  std::map<std::string, std::map<std::string, std::set<std::string>>> instances;  // architecture, kernel, arguments
  for (const Found& found : all) {
    const auto* row = std::find_if(std::begin(kKernels), std::end(kKernels), [&](const Expected& e) { return e.kernel == found.kernel; });
    if (row == std::end(kKernels)) {
      ADD_FAILURE() << found.kernel << " has no line in the table";
      continue;
    }
    instances[found.architecture][found.kernel].insert(found.arguments);
    EXPECT_GE(found.loads, row->loads) << found.kernel << found.arguments << " on " << found.architecture;
    EXPECT_GE(found.stores, row->stores) << found.kernel << found.arguments << " on " << found.architecture;
  }
  const std::set<std::string> wanted = wanted_architectures();
  ASSERT_FALSE(wanted.empty());
  for (const std::string& architecture : wanted) {
    for (const Expected& row : kKernels) {
      EXPECT_EQ(static_cast<int>(instances[architecture][row.kernel].size()), row.instantiations) << row.kernel << " on " << architecture;
    }
  }
}

}  // namespace
#endif

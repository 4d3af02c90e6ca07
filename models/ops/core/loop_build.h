// Compiles a loop for several processors: LFT_CLONES before a function makes one copy per
// processor, with all LFT_INLINE functions inlined. Only for the files with loops.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LFT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
/// The same for loops on explicit vectors: `body` is compiled with kVectorBytes of each processor,
/// and name(arguments) calls the version for this one. (With versions that differ only by a target
/// attribute, other sources would always call the default.)
#define LFT_VERSIONS(name, parameters, arguments, body)                                   \
  __attribute__((target("arch=x86-64-v4"))) static void name##_with_64_bytes parameters { \
    constexpr int kVectorBytes = 64;                                                      \
    body;                                                                                 \
  }                                                                                       \
  __attribute__((target("arch=x86-64-v3"))) static void name##_with_32_bytes parameters { \
    constexpr int kVectorBytes = 32;                                                      \
    body;                                                                                 \
  }                                                                                       \
  static void name##_with_16_bytes parameters {                                           \
    constexpr int kVectorBytes = 16;                                                      \
    body;                                                                                 \
  }                                                                                       \
  void name parameters {                                                                  \
    static const bool has_64 = __builtin_cpu_supports("x86-64-v4") != 0,                  \
                      has_32 = __builtin_cpu_supports("x86-64-v3") != 0;                  \
    if (has_64) {                                                                         \
      name##_with_64_bytes arguments;                                                     \
    } else if (has_32) {                                                                  \
      name##_with_32_bytes arguments;                                                     \
    } else {                                                                              \
      name##_with_16_bytes arguments;                                                     \
    }                                                                                     \
  }
#else
#define LFT_CLONES
#define LFT_VERSIONS(name, parameters, arguments, body) \
  void name parameters {                                \
    constexpr int kVectorBytes = 16;                    \
    body;                                               \
  }
#endif
#define LFT_INLINE static inline __attribute__((always_inline))

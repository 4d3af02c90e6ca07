// Compiles a loop for several processors: LFT_CLONES before a function makes one copy per
// processor, with all LFT_INLINE functions inlined. Only for the files with loops.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LFT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
/// The same for loops on explicit vectors: `body` is compiled with kVectorBytes of that processor.
#define LFT_VERSIONS(signature, body)                   \
  __attribute__((target("arch=x86-64-v4"))) signature { \
    constexpr int kVectorBytes = 64;                    \
    body;                                               \
  }                                                     \
  __attribute__((target("arch=x86-64-v3"))) signature { \
    constexpr int kVectorBytes = 32;                    \
    body;                                               \
  }                                                     \
  __attribute__((target("default"))) signature {        \
    constexpr int kVectorBytes = 16;                    \
    body;                                               \
  }
#else
#define LFT_CLONES
#define LFT_VERSIONS(signature, body) \
  signature {                         \
    constexpr int kVectorBytes = 16;  \
    body;                             \
  }
#endif
#define LFT_INLINE static inline __attribute__((always_inline))

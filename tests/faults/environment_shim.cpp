// Preloaded into lft: a change of the environment while other threads exist ends the process.
// getenv() takes no lock, so that any of them may read the table of variables as it moves; a merge
// crashed in about one of 1,500 runs because of it. With OMP_NUM_THREADS=1 SharedCores has no
// thread, which would be counted though it reads no variable.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

namespace {

void require_one_thread(const char* variable) {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  const auto count = std::distance(begin(threads), end(threads));
  if (count == 1) return;
  fprintf(stderr, "%s is changed while %ld threads exist\n", variable, static_cast<long>(count));
  abort();
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int setenv(const char* name, const char* value, int overwrite) noexcept {
  if (overwrite != 0 || getenv(name) == nullptr) require_one_thread(name);
  return real<decltype(&setenv)>("setenv")(name, value, overwrite);
}

extern "C" int unsetenv(const char* name) noexcept {
  if (getenv(name) != nullptr) require_one_thread(name);
  return real<decltype(&unsetenv)>("unsetenv")(name);
}
